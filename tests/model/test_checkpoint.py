"""The head on disk: bit for bit there and back, every damage refused by name, nothing unpickled that is no tensor."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from swift_plugin.errors import InputError
from swift_plugin.model.checkpoint import (
    HEAD_CONFIG,
    HEAD_WEIGHTS,
    load_head_weights,
    read_head,
    save_head,
    write_reference_head,
)
from swift_plugin.model.head import TurnHead, TurnHeadConfig

CONFIG = TurnHeadConfig(hidden_size=16, num_input_layers=2, learnable_layer_mixture=True, transition_auxiliary=True)


@pytest.fixture
def head() -> TurnHead:
    torch.manual_seed(0)
    module = TurnHead(CONFIG)
    torch.nn.init.normal_(module.layer_mixture)
    return module


@pytest.fixture
def folder(head, tmp_path):
    save_head(CONFIG, head.state_dict(), tmp_path / "checkpoint-1", facts={"versions": {"torch": "x"}})
    return tmp_path / "checkpoint-1"


@pytest.mark.parametrize("file", ["", HEAD_WEIGHTS])
def test_there_and_back(head, folder, file):
    config, state = read_head(folder / file)
    fresh = TurnHead(config)
    load_head_weights(fresh, state, source=folder)
    assert config == CONFIG
    assert fresh.state_dict().keys() == head.state_dict().keys()
    assert all(torch.equal(tensor, head.state_dict()[name]) for name, tensor in fresh.state_dict().items())


def test_the_reference_file_there_and_back(head, tmp_path):
    path = tmp_path / "turn_head.pt"
    write_reference_head(CONFIG, head.state_dict(), path)
    assert torch.load(path, weights_only=True).keys() == {"head", "head_config"}
    config, state = read_head(path)
    assert config == CONFIG
    assert all(torch.equal(state[name], tensor) for name, tensor in head.state_dict().items())


def rename(state):
    state["classifier.kernel"] = state.pop("classifier.weight")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.pop("classifier.bias"), "classifier.bias is missing"),
        (lambda state: state.update(extra=torch.zeros(1)), "extra is unknown"),
        (rename, "classifier.kernel is unknown, classifier.weight is missing"),
        (lambda state: state.update({"classifier.weight": torch.zeros(30, 8)}), r"classifier.weight has shape \(30, 8\) instead of \(30, 16\)"),
    ],
)
def test_other_tensors_are_refused_by_name(folder, damage, message):
    state = load_file(folder / HEAD_WEIGHTS)
    damage(state)
    save_file(state, folder / HEAD_WEIGHTS)
    config, state = read_head(folder)
    head = TurnHead(config)
    before = {name: tensor.clone() for name, tensor in head.state_dict().items()}
    with pytest.raises(InputError, match=message) as error:
        load_head_weights(head, state, source=folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in head.state_dict().items())


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / HEAD_WEIGHTS).unlink(), f"{HEAD_WEIGHTS}: no such file"),
        (lambda folder: (folder / HEAD_CONFIG).unlink(), f"{HEAD_CONFIG}: no such file"),
        (lambda folder: (folder / HEAD_WEIGHTS).write_bytes(b"cut"), f"{HEAD_WEIGHTS}: not readable"),
        (lambda folder: (folder / HEAD_CONFIG).write_text("{"), f"{HEAD_CONFIG}: not readable as JSON"),
        (lambda folder: (folder / HEAD_CONFIG).write_text("{}"), "head_config is missing"),
        (lambda folder: shutil.rmtree(folder), f"{HEAD_WEIGHTS}: no such file"),
    ],
)
def test_a_damaged_folder_is_refused_by_name(folder, damage, message):
    damage(folder)
    with pytest.raises(InputError, match=message) as error:
        read_head(folder)
    assert str(folder) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"colour": "red"}, "unknown head option colour"), ({"num_classes": 4}, "10 horizons of 4 classes")],
)
def test_another_configuration_is_refused(folder, change, message):
    content = json.loads((folder / HEAD_CONFIG).read_text())
    content["head_config"].update(change)
    (folder / HEAD_CONFIG).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message) as error:
        read_head(folder)
    assert str(folder / HEAD_CONFIG) in str(error.value)


class Malicious:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"head": {}, "head_config": Malicious()}, "not loadable with weights_only"),
        ({"head": {}}, "no dict with head and head_config"),
        ([1], "no dict with head and head_config"),
    ],
)
def test_a_strange_reference_file_is_refused(tmp_path, payload, message):
    path = tmp_path / "turn_head.pt"
    torch.save(payload, path)
    with pytest.raises(InputError, match=message) as error:
        read_head(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
