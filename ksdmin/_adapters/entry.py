"""The public functions ``from_torch``, ``from_autograd`` and ``from_jax``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ksdmin._adapters.arguments import Arguments, adapter

if TYPE_CHECKING:
    from ksdmin._adapters.blocks import BlockProblem
    from ksdmin._adapters.functional.problem import FunctionalProblem
    from ksdmin._adapters.torch.plain_function import TorchFunctionProblem
    from ksdmin._adapters.torch.problem import TorchProblem


def from_torch(
    model: Any,
    loss: Any = None,
    data: Any = None,
    *,
    residuals: Any = None,
    x0: Any = None,
    subsets: Any = None,
    output: str | int | Callable[[Any], Any] | None = None,
    curvature: str | Callable[..., Any] | None = None,
    l2: float | Mapping[str, float] = 0.0,
    precond: Any = "auto",
    params: Iterable[Any] | None = None,
    chunk_size: int | None = None,
    memory_budget: float | None = None,
    precision: str = "highest",
    graphs: bool | None = None,
    rng: Any = 0,
    sample_weight: Any = None,
    process_group: Any = None,
) -> TorchProblem | TorchFunctionProblem | BlockProblem:
    """Make a torch model, or a plain function, into a problem that ``minimize`` takes.

    Parameters
    ----------
    model : nn.Module or callable
        The model. Its parameters that require a gradient become one flat vector. Only
        ``problem.load(x)`` changes the module itself. `output` says what it may return. With `x0`,
        and without `loss` and `data`, it is a plain function ``fun(theta) -> scalar tensor``; with
        `subsets`, ``fun(theta, idx)`` is the mean over the samples `idx`.
    loss : module or callable, optional
        A torch loss module, or a callable (outputs, targets) -> one loss per sample. The objective
        is the mean over samples; over the elements of one sample, a module's own mean or sum is
        kept. GaussianNLLLoss takes outputs (mean, variance) and targets y, or the mean as output
        and targets (y, variance). Without `loss`, the model returns its own: see the notes.
    data : (inputs, targets), dict, Dataset, DataLoader or callable
        Tensors or numpy arrays (also memory-mapped ones) with one row per sample; inputs and
        targets may each be nested tuples, lists, dicts and namedtuples of several. A tuple of
        inputs becomes positional arguments of the model; a dict or a namedtuple becomes keyword
        arguments if the forward pass takes these names, otherwise it is the one argument. In a
        dict of fields, "labels", "label", "targets", "target" or "y" has the targets, and the
        others are the inputs. A Dataset has such pairs or dicts of one sample, a DataLoader
        batches of them. Floating-point numbers are converted to the model's dtype. A callable
        ``data(epoch)`` returns the samples of one iteration. See the notes.
    residuals : list of (r, data) or (r, data, weight), optional
        Instead of `loss` and `data`: blocks of residuals whose squares are summed, as for
        physics-informed nets. ``r(model, batch)`` returns one row per sample. `data` is an array,
        or a tuple or dict of arrays, with one row per sample (or a Dataset or DataLoader of these),
        and `batch` holds some of the rows. With ``(r, None)``, ``r(model)`` returns residuals that
        are never sampled. The objective is the sum of ``weight * mean(r**2)`` over the blocks, plus
        the penalty of `l2`. Each block is sampled separately. A set has equally many samples of
        each block; small blocks are taken whole. `data` may also be a function of the epoch.
        Without a tolerance of yours, runs end by tests that do not depend on units: see
        :doc:`/residuals`.
    x0 : Tensor, nn.Module, or nested dict, list or tuple of tensors, optional
        Where a plain function starts. Its argument `theta` has the same form. An iterator such as
        ``net.parameters()`` becomes a list. If `x0` is a module, the function gets the module, and
        during the call the module has the parameters to evaluate. ``problem.load(x)`` writes into
        these tensors.
    subsets : int, Subsets, callable or iterable, optional
        The samples that a plain function ``fun(theta, idx)`` takes its mean over: see
        :class:`Subsets`. A model's samples are its data.
    output : str, int or callable, optional
        The output that the loss gets, if the model returns several: a name (key, attribute or
        field), an index, or a function of the outputs that returns a tensor or a tuple of tensors.
        By default the ``logits``, if the outputs have them; otherwise all outputs, as the model
        returns them: a tuple, list, dict or dataclass of tensors with the samples as first axis.
        Torch's losses take one tensor only (except GaussianNLLLoss).
    curvature : {"gauss-newton", "hessian", "fisher", "empirical-fisher"} or callable, optional
        The curvature matrix; or a function (x, idx) -> product, matrix or LinearOperator of the
        mean loss, to which l2 is added. By default "gauss-newton", and for a plain function the
        Hessian.
    l2 : float or mapping, optional
        The objective is ``mean loss + (l2 / 2) |x|^2``. A mapping gives `l2` by the names of
        parameters or modules (or by the keys of `x0`, joined by dots); the others have 0.
    precond : {"auto", "kronecker", "diagonal"}, None, array or callable, optional
        The preconditioner: Kronecker factors of the Fisher matrix (K-FAC), the diagonal of the
        empirical Fisher matrix, none, or a diagonal of your own as a flat vector, or (x, idx) ->
        one. "auto" takes factors where the model is nonlinear and has layers that are not too
        wide for its number of samples, and the diagonal otherwise (none for a plain function). See
        the notes, and the options `floor` and `diagonal_power` of a diagonal.
    params : iterable, optional
        The parameters to vary: names of parameters or modules, or Parameters; by default all that
        require a gradient.
    chunk_size : int, optional
        How many samples are computed at once; by default as many as fit `memory_budget`. With
        BatchNorm in train mode it is also the largest batch, by default 256 if they fit.
    memory_budget : float, optional
        Bytes on the model's device for activations, and as many again for data. Data that do not
        fit are streamed. By default a quarter of the free memory.
    precision : {"highest", "high", "bfloat16", "float32"}
        Matrix products of float32 parameters: in float32, with TF32, or in bfloat16 (autocast).
        When rounding hides the gain of its steps, a run of "ksd" changes to finer ones: from
        bfloat16 to TF32, then to float32 for values and gradients, but not for the curvature, and
        finally to float64 for everything: see the notes. "float32" is "highest" without float64.
    graphs : bool, optional
        Whether to use CUDA graphs; by default on CUDA. A model that draws random numbers
        (dropout) or returns the mean loss of a batch runs without; for a plain function see the
        notes.
    rng : None, int, Generator, ..., optional
        The seed of the labels that "fisher" draws, and of dropout masks. Both are always the
        same for the same set of samples.
    sample_weight : vector, optional
        A weight for each sample, as in scikit-learn: not negative, not all zero. The objective is
        sum(w l) / sum(w); on some of the samples it is the mean of w l, with w divided by the mean
        over all of them. It multiplies the class weights of a loss.
    process_group : "auto" or ProcessGroup, optional
        The processes of torch.distributed that share one run. Each has `data` of its own (or
        samples of its own in each block of `residuals`), and the objective is the mean over the
        samples of all. "auto" is the default group; if torchrun has started the process, the group
        is initialised, otherwise the run is an ordinary one. All processes must call the same
        functions: see :doc:`/distributed`.

    Returns
    -------
    TorchProblem, TorchFunctionProblem or BlockProblem
        With ``x0``, ``load(x)``, ``index(name)`` (where a parameter is in the flat vector; a prefix
        such as "encoder" stands for all beneath it), the verbs of :class:`Problem`, and numpy
        callables ``fun``, ``jac``, ``hessp``; that of a plain function also with ``unflatten(x)``,
        a flat vector in the form of `x0` (for a module {name: tensor}).

    Notes
    -----
    A plain function may differentiate itself (``torch.autograd.grad`` with ``create_graph=True``,
    ``torch.func``), as physics-informed losses do. It must be deterministic, and its value must
    depend on `theta` through autograd. On CUDA a run captures it in CUDA graphs after a few calls,
    and then replays these without calling it. So whatever else it reads must not change in a run.
    (``graphs=False`` calls it every time. A function that copies from the host, or looks at values
    there, cannot be captured and is called every time, too.) `params`, `chunk_size` and
    `memory_budget` are for models only. A module whose forward pass returns the loss of one fixed
    batch is a plain function, too: ``from_torch(lambda module: module(batch), x0=net)``.

    A model that returns its own loss, like those of HuggingFace if they get labels, needs no
    `loss`: all of `data` are its inputs, ``from_torch(net, data={"input_ids": ..., "labels":
    ...})``. It returns the loss itself, or outputs with a field ``loss`` (or what `output` names):
    one loss per sample, or the mean over the samples of a batch. A mean over all words of a batch,
    if samples have different numbers of words, is an error: give `loss` and the labels as targets.
    The curvature is by default the Gauss-Newton matrix of the loss as a function of the ``logits``
    among the outputs; without them (or if the loss depends on more) it is the Hessian. With a mean
    there are no CUDA graphs, as chunks cannot be padded, and no weights of samples.

    For GaussianNLLLoss with outputs (mean, variance), the Gauss-Newton matrix uses the Fisher
    information of the normal distribution, since the Hessian of the loss is not positive
    semidefinite.

    **Train and eval mode.** The model is evaluated in the modes that its modules have now. Later
    ``net.eval()`` or ``net.train()``, in a callback or between two runs, change your own calls of
    the model, not the objective.

    **BatchNorm in train mode** normalises by the statistics of batches, which are part of the
    objective and are differentiated with it. A set of samples is one batch; more than `chunk_size`
    (256) are split into equal batches, at random but always in the same way, so that values can be
    compared and runs repeated. Running statistics are left alone until ``problem.load(x)``, which
    sets them to those of the data at `x` (of 10,000 samples at most, of a function of the epoch
    those of epoch 0): then ``net.eval()`` predicts as the net was trained. In eval mode BatchNorm
    keeps its statistics. In train mode there is no diagonal preconditioner, and no
    `process_group`, `residuals`, SyncBatchNorm or model that returns the mean loss of a batch.
    Batches that do not fit into memory end the run: give a smaller `chunk_size`.

    **Where data are kept.** Data that fit into `memory_budget` are put on the model's device once.
    Others stay where they are, and a thread prepares the next chunks during the computation (on
    CUDA in pinned memory). A product of a set that exceeds the budget reads its chunks again every
    time. The numbers are the same in both cases.

    **Datasets and DataLoaders** are read once, batch by batch with the loader's workers and its
    collate_fn, if all samples fit into memory, judged by the first batch: random augmentation is
    then frozen, as the objective has to be the same in every evaluation. Larger ones are fetched
    chunk by chunk whenever they are needed, and so are batches of several lengths (padded by the
    collate_fn): they must be the same each time. The workers that fetch them stay as long as the
    problem. Padding all samples to one length, so that they can be kept, is faster. All samples
    count, also with `drop_last`, and their order has no effect: shuffling and (without
    `process_group`) a DistributedSampler are ignored. A SubsetRandomSampler, or a list of indices
    as the sampler, restricts the samples. Other samplers change the objective and are refused: use
    `sample_weight`, or a ``torch.utils.data.Subset``.

    **A function of the epoch**, ``data(epoch)``, gives every iteration a set of its own, of any
    size, for gradient, curvature and search: new collocation points, say. The epoch is the number
    of the iteration, so that a saved run continues with the same sets. The function must return the
    same samples for the same epoch: seed what it draws. If it returns the same numbers again (for a
    Dataset: the same object), the run keeps the set, which is better for its steps than a new one
    every time: ``points(epoch // 50)``. The values before and after a step are always compared on
    one set, the new one. After a refused step the run keeps the gradient on the set before. No set
    is the whole, so such a run ends by ``maxiter``, ``maxtime`` or the callback, never with
    ``success``, and the result's values are those of the last set. SciPy's methods do not take
    such a problem. ``problem.value(x, idx)`` and the other verbs take as `idx` what the function
    returned (for blocks: what ``problem.subsets`` draws); without `idx` they take the set of epoch
    0. Blocks whose data are not a function are whole in every set.

    **From float32 to float64.** When rounding hides what further steps gain, a run of "ksd" goes on
    with a copy of the model in float64, its buffers included, and the samples, which keep the
    digits that they had, are converted chunk by chunk. Then ``res.x`` and what callbacks get are
    float64, otherwise float32. ``problem.load(res.x)`` rounds to the dtype of the parameters: call
    ``net.double()`` first to keep all digits. If a model fails in float64, for example because its
    functions capture float32 tensors, a warning says so, and the run stays in float32. It also
    stays there with a callable `curvature` or `precond`, and with `process_group`.
    ``precision="float32"`` switches this off, for example for a GPU that is slow in float64.

    **Memory on CUDA**, for multi-layer perceptrons: the data on the device, and about

    .. math:: s n (K + m + 40) + a (3.4 c + 4.2 |B| + 2.5 |C|)

    bytes, with n parameters of s bytes, K = krylov_dim, m = memory, c = chunk_size and a =
    ``problem.bytes_per_sample``. (Ten measured runs of the MNIST auto-encoder differed from it by
    at most 5%.) Sets B and C beyond `memory_budget`, and A beyond `chunk_size`, count as one chunk.

    **Kronecker factors.** Weights of matrix products, convolutions and embeddings have them,
    anywhere in a model: in Linear layers, attention, recurrent layers or code of your own. They are
    found in the graph of a forward pass. A bias that is added in the same operation goes with its
    weight; a side of more than 4096 rows or columns has the diagonal of its factor. Any other
    parameter (such as that of a norm) has one number for all of its entries. Labels are drawn
    from the model where the loss is a likelihood; other losses take those of the data. Up to 1000
    samples of A are used, and the factors serve five iterations. They take three times the bytes of
    their entries: the squares of the two sides of each weight. With `residuals` there is a
    diagonal, and ``ksdmin.PAPER`` has one, too.

    The diagonal for the preconditioner comes with the gradient where all parameters are those of
    Linear layers that see each sample once. Those of convolutions, recurrent layers, embeddings
    and the like need the gradient of every sample, by vmap. That is expensive, so the diagonal is
    estimated from 256 samples. A model that fails under vmap has no diagonal.

    Examples
    --------
    A model, a loss, data:

    >>> import torch, ksdmin
    >>> X = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    >>> net = torch.nn.Linear(1, 1).double()
    >>> problem = ksdmin.from_torch(net, torch.nn.MSELoss(), (X, 3 * X + 1))
    >>> res = ksdmin.minimize(problem)
    >>> problem.load(res.x)  # into the net
    >>> round(net.weight.item(), 4), round(net.bias.item(), 4)
    (3.0, 1.0)

    A plain function, here of a dict of tensors:

    >>> start = {"a": torch.zeros(2, dtype=torch.float64), "b": torch.ones(1).double()}
    >>> def fun(theta):
    ...     return ((theta["a"] - 1) ** 4).sum() + (theta["a"] ** 2).sum() + theta["b"].cosh().sum()
    >>> problem = ksdmin.from_torch(fun, x0=start)
    >>> res = ksdmin.minimize(problem)
    >>> problem.unflatten(res.x)["a"].numpy().round(4).tolist()
    [0.4102, 0.4102]

    Two blocks of residuals, a fit and a condition at one point:

    >>> def fit(net, batch):
    ...     return net(batch[0]) - batch[1]
    >>> def at_zero(net, x):
    ...     return net(x) - 1
    >>> blocks = [(fit, (X, 3 * X + 2)), (at_zero, torch.zeros(1, 1).double(), 1e6)]
    >>> problem = ksdmin.from_torch(net, residuals=blocks)
    >>> problem.load(ksdmin.minimize(problem, rng=0).x)
    >>> round(net.weight.item(), 3), round(net.bias.item(), 3)
    (3.0, 1.0)
    """
    asked = Arguments(**locals())
    problem: TorchProblem | TorchFunctionProblem | BlockProblem = adapter("torch").build(asked)
    return problem


def from_autograd(
    model: Callable[..., Any] | None = None,
    loss: str | Callable[..., Any] | None = None,
    data: Any = None,
    *,
    residuals: Any = None,
    params: Any = None,
    x0: Any = None,
    subsets: Any = None,
    curvature: str | Callable[..., Any] | None = None,
    l2: Any = 0.0,
    precond: Any = "diagonal",
    chunk_size: int | None = None,
    memory_budget: float | None = None,
    rng: Any = 0,
    sample_weight: Any = None,
) -> FunctionalProblem | BlockProblem:
    """Make a function written for HIPS autograd into a problem that ``minimize`` takes.

    Parameters
    ----------
    model : callable
        ``model(params, inputs) -> outputs``, one row per sample, written with ``autograd.numpy``.
        Without `loss` and `data`: a plain function, ``model(x)`` or ``model(x, idx)``.
    data : (inputs, targets)
        Numpy arrays with one row per sample, or nested tuples, lists and dictionaries of them.
    params : tree of arrays
        The initial parameters, all float32 or all float64. Other leaves (whole numbers, functions,
        None) are kept as they are.
    loss, residuals, x0, subsets, curvature, l2, precond
        As in :func:`from_jax`.
    chunk_size, memory_budget, rng, sample_weight
        As in :func:`from_jax`.

    Returns
    -------
    FunctionalProblem or BlockProblem
        As that of :func:`from_jax`, with numpy arrays.

    Notes
    -----
    The diagonal for the preconditioner comes with the gradient where parameters only multiply
    (``inputs @ W``), scale or shift one vector per sample. Other models are differentiated sample
    by sample for it, which is slow: then it is estimated from 256 samples. ``precond=None`` does
    without it.

    Examples
    --------
    >>> import autograd.numpy as np, ksdmin
    >>> X = np.linspace(-1, 1, 50)[:, None]
    >>> def line(params, inputs):
    ...     return inputs @ params["slope"] + params["shift"]
    >>> start = {"slope": np.zeros((1, 1)), "shift": np.zeros(1)}
    >>> problem = ksdmin.from_autograd(line, "squared-error", (X, 3 * X + 1), params=start)
    >>> res = ksdmin.minimize(problem, rng=0)
    >>> found = problem.unflatten(res.x)
    >>> found["slope"].round(4).tolist(), found["shift"].round(4).tolist()
    ([[3.0]], [1.0])

    A plain function:

    >>> def fun(x):
    ...     return np.sum((x - 1) ** 4) + np.sum(x**2)
    >>> res = ksdmin.minimize(ksdmin.from_autograd(fun, x0=np.zeros(3)))
    >>> res.x.round(4).tolist()
    [0.4102, 0.4102, 0.4102]
    """
    problem: FunctionalProblem | BlockProblem = adapter("autograd").build(Arguments(**locals()))
    return problem


def from_jax(
    model: Callable[..., Any] | None = None,
    loss: str | Callable[..., Any] | None = None,
    data: Any = None,
    *,
    residuals: Any = None,
    params: Any = None,
    x0: Any = None,
    subsets: Any = None,
    curvature: str | Callable[..., Any] | None = None,
    l2: Any = 0.0,
    precond: Any = "diagonal",
    chunk_size: int | None = None,
    memory_budget: float | None = None,
    precision: str = "highest",
    rng: Any = 0,
    sample_weight: Any = None,
) -> FunctionalProblem | BlockProblem:
    """Make a jax function into a problem that ``minimize`` takes: compiled, on its device.

    Parameters
    ----------
    model : callable
        ``model(params, inputs) -> outputs``, one row per sample, that ``jax.jit`` can compile.
        Without `loss` and `data`: a plain function, ``model(x)`` or ``model(x, idx)``.
    loss : str or callable
        "squared-error", "softmax-cross-entropy", "binary-cross-entropy" (of logits) or "poisson"
        (of log rates), each a sum over the outputs of a sample; or a callable
        (outputs, targets) -> one loss per sample, differentiated in the outputs.
    data : (inputs, targets)
        Arrays with one row per sample, or nested tuples, lists and dictionaries of them. Numpy
        arrays are copied to the device of `params`; if they exceed `memory_budget`, chunk by chunk.
    residuals : list of (r, data) or (r, data, weight), optional
        In place of `model`, `loss` and `data`: blocks of residuals whose squares are summed.
        ``r(params, batch)`` returns one row per sample of the tree of arrays `data`;
        ``(r, None)``: ``r(params)`` returns residuals that are always taken whole. The objective
        is the sum of ``weight * mean(r**2)`` over the blocks, and the penalty of `l2`.
    params : tree of arrays
        The initial parameters, all float32 or all float64: any tree of jax, also a module of
        equinox, or the variables of flax. Other leaves (whole numbers, random keys, functions) are
        kept as they are; ``unflatten`` puts them back.
    x0 : array or tree of arrays
        Where a plain function starts. A list of numbers is a vector.
    subsets : int, Subsets, callable or iterable, optional
        The samples that a plain function ``model(x, idx)`` takes its mean over: see
        :class:`Subsets`. A model's samples are its data. The number must be right: for an index
        beyond the end, jax silently takes the last row.
    curvature : {"gauss-newton", "hessian", "fisher", "empirical-fisher"} or callable, optional
        The curvature matrix; or a function (x, idx) -> product or matrix of the mean loss, to which
        l2 is added. By default "gauss-newton", and for a plain function the Hessian.
    l2 : float or tree of floats, optional
        The objective is ``mean loss + (l2 / 2) |x|^2``. A tree gives `l2` for parts of `params`;
        the others have 0.
    precond : "diagonal", None, array or callable, optional
        The diagonal preconditioner: that of the empirical Fisher matrix (none for a plain
        function), none, or your own as a flat vector, or (x, idx) -> one.
    chunk_size : int, optional
        How many samples are computed at once; by default as many as fit `memory_budget`.
    memory_budget : float, optional
        Bytes for activations and for gradients of single samples. By default 1 GiB. If a set needs
        more, its forward pass is repeated for every product.
    precision : {"highest", "high"}
        Matrix products of float32 parameters: in float32, or with TF32 where the device has it
        (for values and gradients only until rounding hides the gain of a run's steps).
    rng : None, int, Generator, ..., optional
        The seed of the labels that "fisher" draws.
    sample_weight : vector, optional
        A weight for each sample, as in scikit-learn: not negative, not all zero. The objective is
        sum(w l) / sum(w); on some of the samples it is the mean of w l, with w divided by the mean
        over all of them.

    Returns
    -------
    FunctionalProblem or BlockProblem
        With ``x0``, ``unflatten(x)``, ``index(path)`` (where a leaf such as "layers.0.w", or all
        beneath a path, is in the flat vector), the verbs of :class:`Problem`, and numpy callables
        ``fun``, ``jac``, ``hessp``.

    Notes
    -----
    About ten functions are compiled, each once: sets of all sizes are padded to chunks of one
    length. A second problem of the same model, for example from another seed, compiles nothing.
    (Large data have one more length, that of all samples. A plain function of samples is compiled
    for each size of a set.) On the CPU the algebra of a run is numpy's. Float64 needs jax's own
    setting, ``jax.config.update("jax_enable_x64", True)``, which ksdmin never changes.

    Examples
    --------
    >>> import jax.numpy as jnp, ksdmin
    >>> X = jnp.linspace(-1, 1, 50)[:, None]
    >>> def line(params, inputs):
    ...     return inputs @ params["slope"] + params["shift"]
    >>> start = {"slope": jnp.zeros((1, 1)), "shift": jnp.zeros(1)}
    >>> problem = ksdmin.from_jax(line, "squared-error", (X, 3 * X + 1), params=start)
    >>> res = ksdmin.minimize(problem, rng=0)
    >>> found = problem.unflatten(res.x)
    >>> round(float(found["slope"][0, 0]), 4), round(float(found["shift"][0]), 4)
    (3.0, 1.0)
    """
    problem: FunctionalProblem | BlockProblem = adapter("jax").build(Arguments(**locals()))
    return problem
