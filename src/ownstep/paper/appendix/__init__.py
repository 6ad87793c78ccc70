"""The paper's appendix: experiments on MNIST, one module each."""
