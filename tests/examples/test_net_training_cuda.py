"""The first-order methods on a GPU: a captured step is the step."""

import pytest
import torch

from examples.data.splits import Splits, images
from examples.harness.net_training.method_interface import Settings
from examples.harness.net_training.point_recorder import PointRecorder
from examples.harness.net_training.tasks import AUTO_ENCODING
from examples.harness.net_training.training import DeviceData, Training
from examples.harness.net_training.training_methods import METHODS
from examples.paper.table1_networks import auto_encoder, initialise_sparsely

pytestmark = pytest.mark.cuda


def trained(method, device, **options):
    part = images(torch.rand(100, 20, generator=torch.Generator().manual_seed(0)).numpy())
    net = auto_encoder(20, (10, 3))
    initialise_sparsely(net, seed=0)
    data = DeviceData.of(Splits(part, part, part[:0]), torch.device(device))
    training = Training(net.to(device), AUTO_ENCODING, data, l2=1e-3, seed=0)
    recorder = PointRecorder(seconds=100.0, passes=200.0)
    # One batch of everything: the order of the samples, which the device draws, does not matter.
    settings = Settings("", "highest", 0, 0.0, 0.0, rate=1e-3, options={"batch": 100, **options})
    METHODS[method].train(training, recorder, settings)
    return recorder.kept[-1]


@pytest.mark.parametrize(("method", "options"), [("adam", {}), ("nag", {"momentum": 0.9})])
def test_a_captured_step_is_the_step(method, options):
    here, there = (trained(method, device, **options) for device in ("cpu", "cuda"))
    assert here.work == there.work
    torch.testing.assert_close(there.x.cpu(), here.x, rtol=1e-3, atol=1e-3)
