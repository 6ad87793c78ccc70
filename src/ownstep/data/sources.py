"""Every downloadable dataset: its files, the authors' addresses, and what the bytes must hash to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """One file as its authors lay it out.

    Parameters
    ----------
    path : below the data folder.
    sha256 : of the file; of its uncompressed content for ``.bz2``, whose compression may differ between copies.
    urls : where to get it, the authors' own address first. Of an archive when ``member`` is given.
    member : name inside that archive.
    """

    path: str
    sha256: str
    urls: tuple[str, ...]
    member: str | None = None


@dataclass(frozen=True)
class Source:
    """A dataset that has to be fetched."""

    name: str
    about: str
    files: tuple[Remote, ...]
    citation: str


_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary"
_MNIST = ("http://yann.lecun.com/exdb/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist")
_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_HEART = "https://archive.ics.uci.edu/static/public/45/heart+disease.zip"
_SST2 = "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip"


def _mnist(name: str, sha256: str) -> Remote:
    return Remote(f"MNIST/raw/{name}", sha256, tuple(f"{base}/{name}" for base in _MNIST))


def _cifar(name: str, sha256: str) -> Remote:
    return Remote(f"cifar-10-batches-bin/{name}", sha256, (_CIFAR,), f"cifar-10-batches-bin/{name}")


def _sst2(name: str, sha256: str) -> Remote:
    return Remote(f"SST-2/{name}", sha256, (_SST2,), f"SST-2/{name}")


def _heart(hospital: str, sha256: str) -> Remote:
    name = f"processed.{hospital}.data"
    return Remote(f"heart-disease/{name}", sha256, (_HEART,), name)


SOURCES: dict[str, Source] = {
    "w8a": Source(
        "w8a",
        "49,749 web pages, 300 binary keywords, two classes (3 % positive)",
        (
            Remote(
                "libsvm/w8a.bz2",
                "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2",
                (f"{_LIBSVM}/w8a.bz2",),
            ),
            Remote(
                "libsvm/w8a.t.bz2",
                "618929ecb01bebb841daec4cae4aa07b97832d29b08652452775598929547fde",
                (f"{_LIBSVM}/w8a.t.bz2",),
            ),
        ),
        "Platt (1998), as distributed by Chang and Lin, LIBSVM Data",
    ),
    "mnist": Source(
        "mnist",
        "70,000 handwritten digits, 28x28 grey, ten classes",
        (
            _mnist(
                "train-images-idx3-ubyte.gz",
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            _mnist(
                "train-labels-idx1-ubyte.gz",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            _mnist(
                "t10k-images-idx3-ubyte.gz",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            _mnist(
                "t10k-labels-idx1-ubyte.gz",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        "LeCun, Cortes and Burges",
    ),
    "cifar10": Source(
        "cifar10",
        "60,000 photographs, 32x32 colour, ten classes",
        (
            _cifar("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            _cifar("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            _cifar("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            _cifar("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            _cifar("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            _cifar("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ),
        "Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images",
    ),
    "sst2": Source(
        "sst2",
        "68,221 labelled film-review phrases, two classes",
        (
            _sst2("train.tsv", "48eac26399f8456935f81dd9e3a745c1430adb6c62e233ccfe22db4a0d15d1d1"),
            _sst2("dev.tsv", "54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0"),
            _sst2("test.tsv", "69a938605609b3e6663b4487918fe1565eb293734e6e520d0366d1d412fd2a13"),
        ),
        "Socher et al. (2013); GLUE version: Wang et al. (2018)",
    ),
    "heart_disease": Source(
        "heart_disease",
        "920 patients of four hospitals, 740 with every value known, heart disease or not",
        (
            _heart("cleveland", "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8"),
            _heart("hungarian", "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796"),
            _heart("switzerland", "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314"),
            _heart("va", "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f"),
        ),
        "Janosi, Steinbrunn, Pfisterer and Detrano (1988), Heart Disease, UCI Machine Learning Repository, "
        "doi 10.24432/C52P4X, CC BY 4.0. Hungarian Institute of Cardiology, Budapest: A. Janosi; University Hospital, "
        "Zurich: W. Steinbrunn; University Hospital, Basel: M. Pfisterer; V.A. Medical Center, Long Beach, and "
        "Cleveland Clinic Foundation: R. Detrano",
    ),
}

SOURCES["sst2_words"] = Source(
    "sst2_words",
    "the sentences of sst2 as a table: tf-idf weights of 13,774 words",
    SOURCES["sst2"].files,
    SOURCES["sst2"].citation,
)
