"""What is said of BatchNorm: in train mode, without statistics, with statistics never taken."""

import warnings

import pytest
import torch
from torch import nn

from tests.adapters.torch.dense import from_module

X = torch.linspace(-2, 5, 24).reshape(8, 3)
DATA = X, X[:, :2]
ADVICE = (
    r"run some batches in train mode under torch\.no_grad\(\), then model\.eval\(\)\. Or use Gr"
)


def net(**options):
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, **options))


def test_train_mode_says_how_to_take_statistics():
    with pytest.raises(ValueError, match=rf"'1' is in train mode.*{ADVICE}"):
        from_module(net(), DATA)
    with pytest.raises(ValueError, match=rf"'1' keeps no running statistics.*{ADVICE}"):
        from_module(net(track_running_stats=False).eval(), DATA)


def test_statistics_never_taken_are_warned_of():
    with pytest.warns(
        UserWarning, match=rf"'1' is in eval mode, but has taken.*{ADVICE}"
    ) as caught:
        from_module(net().eval(), DATA)
    assert len(caught) == 1


def test_the_warning_points_at_the_caller():
    import ksdmin

    with pytest.warns(UserWarning, match="has taken no statistics") as caught:
        ksdmin.from_torch(net().eval(), nn.MSELoss(), DATA)
    assert caught[0].filename == __file__


def taken(model):
    """As the advice says."""
    with torch.no_grad():
        model.train()(X)
    return model.eval()


def given(model):
    """A checkpoint that does not say how many batches there were."""
    model[1].running_mean.fill_(0.5)
    return model.eval()


@pytest.mark.parametrize("prepare", [taken, given])
def test_with_statistics_there_is_nothing_to_say(prepare):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_module(prepare(net()), DATA)
