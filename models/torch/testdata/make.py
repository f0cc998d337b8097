"""Writes the files of this folder with torch 2.15. Run it in this folder."""

import collections
import os

import torch


class Command:
    def __reduce__(self):
        return (os.system, ("true",))


base = torch.arange(12, dtype=torch.float32)
types = {
    "float32": base.reshape(3, 4) / 8,
    "float16": torch.tensor([1.5, -65504.0], dtype=torch.float16),
    "bfloat16": torch.tensor([[1.0], [-3.0]], dtype=torch.bfloat16),
    "int64": torch.tensor([-1, 1 << 40]),
    "float64": torch.tensor([0.5], dtype=torch.float64),
    "scalar": torch.tensor(7.0),
    "empty": torch.zeros(0, 3),
    "view": base[4:8].reshape(2, 2),  # offset 4 in a storage
    "column": base[:1].reshape(1, 1).expand(1, 1),  # strides of dimensions of 1
    "parameter": torch.nn.Parameter(torch.tensor([2.0])),
    "steps": 3,
}
norm = torch.nn.Sequential(collections.OrderedDict(conv=torch.nn.Conv1d(2, 3, 2), norm=torch.nn.BatchNorm1d(3)))
with torch.no_grad():
    for i, p in enumerate(norm.parameters()):
        p.fill_(i)
nested = {"state_dict": norm.state_dict(), "epoch": 3, "lr": [0.5, None, True, -70000], "shape": (1, 2), "big": 1 << 40}

torch.save(types, "types.pt")
torch.save(norm.state_dict(), "module.pt")
for protocol in (2, 3, 4, 5):
    torch.save(nested, f"protocol{protocol}.pt", pickle_protocol=protocol)

torch.save({"a": torch.ones(1), "b": Command()}, "command.bad.pt")
torch.save(torch.nn.Linear(1, 1), "module.bad.pt")
torch.save({"a": torch.ones(2, 3).t()}, "columns.bad.pt")
torch.save({"a": torch.ones(1).expand(4)}, "expanded.bad.pt")
torch.save([torch.ones(1)], "list.bad.pt")
torch.save({"a": {1, 2}}, "set.bad.pt")
torch.save({"a": 1}, "plain.bad.pt")
torch.save({"a": {"w": torch.ones(1)}, "b": {"w": torch.ones(1)}}, "two.bad.pt")
torch.save({"a": torch.ones(1, dtype=torch.complex64)}, "complex.bad.pt")
torch.save({3: torch.ones(1)}, "number.bad.pt")
torch.save({"a": torch.ones(1)}, "protocol0.bad.pt", pickle_protocol=0)
torch.save({"a": torch.ones(1)}, "legacy.bad.pt", _use_new_zipfile_serialization=False)
