"""The text classifier: cached activations are the frozen layers' outputs, whoever computes them."""

import math
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ownstep import GD, Devices, InvalidInput, OwnstepError, partition, run  # noqa: E402
from ownstep.problems import Network  # noqa: E402
from ownstep.problems.network.encoder import Encoder, Shape, find_folder, from_transformers, load_encoder  # noqa: E402
from ownstep.problems.network.models import seeded  # noqa: E402
from ownstep.problems.network.text import buckets, frozen_activations, padded, text_classifier, tokenise  # noqa: E402

TINY = Shape(50, 40, 8, 12, 3, 2, 1e-12)


def sentences(n=30, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 50, rng.integers(2, 12)).astype(np.int32) for _ in range(n)]


def tiny(shape=TINY):
    return seeded(lambda: Encoder(shape), 0).eval()


def test_buckets_cover_every_sentence_once_and_respect_the_limit():
    ids = sentences()
    cut = buckets(ids, 40)
    assert sorted(np.concatenate(cut)) == list(range(30))
    assert all(len(b) * max(len(ids[i]) for i in b) <= 40 for b in cut)
    with pytest.raises(InvalidInput, match="at least one token"):
        buckets([np.zeros(0, np.int32)])


def test_sentences_are_cut_where_the_encoder_ends():
    """A tokenizer leaves long sentences as they are unless it is told to cut them."""

    def words(texts, truncation=False, max_length=None):
        return {"input_ids": [[len(w) for w in t.split()][: max_length if truncation else None] for t in texts]}

    assert [ids.tolist() for ids in tokenise(words, ["a bb ccc dddd", "ee"], longest=3)] == [[1, 2, 3], [2]]


def test_cached_activations_give_the_whole_encoders_outputs(tmp_path):
    encoder, ids = tiny(), sentences()
    words, real = padded(ids)
    with torch.no_grad():
        hidden = encoder(words, real)
        model = text_classifier(encoder, 2, seed=3)
        mean = (hidden * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        expected = model.head(mean)
    for folder in (None, tmp_path, tmp_path):  # in memory, written to disk, read from it
        blocks, order = frozen_activations(encoder, ids, folder=folder, tokens=40)
        made = Network(model, blocks, np.arange(30) % 2, partition.iid(30, 3))
        found = torch.cat([made.outputs(made.x0(), part) for part in made.parts])
        torch.testing.assert_close(found, expected[torch.as_tensor(order)], atol=1e-5, rtol=1e-5)
    assert len(list(tmp_path.glob("*.npy"))) == len(blocks.parts) > 1
    other = tiny()
    with torch.no_grad():
        next(other.parameters()).add_(1.0)
    fresh, _ = frozen_activations(other, ids, folder=tmp_path, tokens=40)  # another encoder never meets these files
    plain, _ = frozen_activations(other, ids, tokens=40)
    torch.testing.assert_close(fresh.parts[0][0], plain.parts[0][0])
    for file in tmp_path.glob("*.npy"):
        file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(OwnstepError, match="is damaged"):
        frozen_activations(encoder, ids, folder=tmp_path, tokens=40)


def test_training_lowers_the_loss_and_leaves_the_rest_alone():
    encoder, ids = tiny(), sentences()
    blocks, order = frozen_activations(encoder, ids, tokens=40)
    labels = np.array([int(i[0] % 2) for i in ids])[order]
    made = Network(text_classifier(encoder), blocks, labels, partition.dirichlet(labels, 3, 0.5))
    layer = encoder.layers[-1]
    assert made.dim == sum(p.numel() for p in layer.parameters()) + 8 * 2 + 2
    history = run(GD(0.5), made, 15, devices=Devices(made.weights, np.ones(3)))
    assert history.value[-1] < history.value[0]
    assert torch.equal(layer.query.weight, tiny().layers[-1].query.weight)


@pytest.mark.parametrize("family", ["bert", "mpnet"])
def test_it_is_the_encoder_transformers_runs(family):
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
        "max_position_embeddings": 40, "pad_token_id": 1,
    }  # fmt: skip
    theirs = {
        "bert": lambda: transformers.BertModel(transformers.BertConfig(**sizes)),
        "mpnet": lambda: transformers.MPNetModel(transformers.MPNetConfig(**sizes)),
    }[family]
    model = seeded(theirs, 0).eval()
    ours = from_transformers(model)
    words, real = padded(sentences(8))
    words = torch.where(words == 1, 2, words)
    words[~real] = 1
    with torch.no_grad():
        expected = model(input_ids=words, attention_mask=real.long()).last_hidden_state
        found = ours(words, real)
    assert ((expected - found) * real[..., None]).abs().max() < 1e-5
    classifier = text_classifier(ours)
    with torch.no_grad():
        before = ours(words, real, 1)
        out = (found * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        torch.testing.assert_close(classifier(before, real), classifier.head(out), atol=1e-5, rtol=1e-5)


def test_an_encoder_that_is_nowhere(monkeypatch, tmp_path):
    pytest.importorskip("transformers")
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(OwnstepError, match=r"no folder .* no installed package"):
        load_encoder("no-such-encoder-anywhere")
    with pytest.raises(OwnstepError, match="cannot be read"):
        load_encoder(str(tmp_path))
    assert find_folder(str(tmp_path)) == tmp_path
    assert find_folder("a/b") is None
    assert find_folder("json") is None


@pytest.mark.parametrize(("buckets_", "length"), [(32, 200), (8, 40), (32, 5)])
def test_far_tokens_share_a_bucket_on_a_logarithmic_scale(buckets_, length):
    """Raffel et al. (2020): one half of the buckets for each side; of it one half for every small distance, the rest
    logarithmically up to 128, beyond which all share the last."""
    encoder = tiny(Shape(50, 40, 8, 12, 1, 2, 1e-12, buckets=buckets_))
    half, found = buckets_ // 2, encoder.position_bias(length)
    assert found.shape == (2, length, length)
    for i in range(length):
        for j in range(0, length, 7):
            n = abs(i - j)
            if n >= half // 2:
                n = min(
                    half - 1, half // 2 + int(math.log(n / (half // 2)) / math.log(128 / (half // 2)) * (half // 2))
                )
            assert torch.equal(found[:, i, j], encoder.relative.weight[n + (half if j > i else 0)])
    assert tiny().position_bias(length) is None


def test_encoders_of_other_families_are_refused():
    for family, act in (("bert", "relu"), ("gpt2", "gelu"), ("mpnet", "gelu_new")):
        config = types.SimpleNamespace(model_type=family, hidden_act=act)
        with pytest.raises(OwnstepError, match=f"bert and mpnet with gelu are known, got '{family}'"):
            from_transformers(types.SimpleNamespace(config=config))


def test_an_encoder_in_a_folder_is_not_looked_for_elsewhere(monkeypatch, tmp_path):
    transformers, asked = pytest.importorskip("transformers"), []

    def give(source, local_files_only):
        asked.append((source, local_files_only))
        return "made"

    for kind in (transformers.AutoTokenizer, transformers.AutoModel):
        monkeypatch.setattr(kind, "from_pretrained", give)
    monkeypatch.setattr(sys.modules[Encoder.__module__], "from_transformers", lambda model: model)
    for where in (str(tmp_path), "no-such-encoder-anywhere"):
        assert load_encoder(where) == ("made", "made")
    assert asked == [(str(tmp_path), True)] * 2 + [("no-such-encoder-anywhere", False)] * 2
