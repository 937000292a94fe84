"""fit on arrays: splits, weights, orders, sources, progress."""

import contextlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from child import run_child

import pyggml
from pyggml import callbacks, layers, optimizers


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


def linear(n_in=3, n_out=1, rate=0.05, loss="mse", **arguments):
    model = pyggml.Sequential([pyggml.Input((n_in,)), layers.Dense(n_out)])
    model.compile(optimizers.SGD(rate), loss, **arguments)
    model.set_weights([np.linspace(-1, 1, n_in * n_out).reshape(n_in, n_out), np.zeros(n_out)])
    return model


def data(n=20, n_in=3, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, n_in)).astype(np.float32)
    return x, x.sum(axis=1)


def weights(model):
    return [w.tobytes() for w in model.get_weights()]


def by_hand(x, y, orders, size, rate=0.05):
    """Gradient descent on a linear model in float64."""
    w = np.linspace(-1, 1, x.shape[1])
    b = 0.0
    for order in orders:
        for start in range(0, len(order), size):
            rows = order[start:start + size]
            error = x[rows].astype(float) @ w + b - y[rows]
            w = w - rate * 2 * (error @ x[rows].astype(float)) / len(rows)
            b = b - rate * 2 * error.mean()
    return np.append(w, b)


# ---- orders and splits ------------------------------------------------------------------------

def test_without_shuffle_rows_come_as_they_lie():
    x, y = data()
    model = linear()
    model.fit(x, y, batch_size=6, epochs=2, shuffle=False, verbose=0)
    found = np.concatenate([w.ravel() for w in model.get_weights()])
    assert found == pytest.approx(by_hand(x, y, [np.arange(20)] * 2, 6), rel=1e-4)


def test_with_a_seed_the_order_of_an_epoch_depends_on_seed_and_number_alone():
    x, y = data()
    orders = [np.random.Generator(np.random.PCG64(np.random.SeedSequence([5, e]))).permutation(20)
              for e in range(3)]
    straight = linear()
    straight.fit(x, y, batch_size=6, epochs=3, seed=5, verbose=0)
    found = np.concatenate([w.ravel() for w in straight.get_weights()])
    assert found == pytest.approx(by_hand(x, y, orders, 6), rel=1e-4)
    resumed = linear()
    resumed.fit(x, y, batch_size=6, epochs=1, seed=5, verbose=0)
    resumed.fit(x, y, batch_size=6, epochs=2, initial_epoch=1, seed=5, verbose=0)
    assert weights(resumed) == weights(straight)


def test_set_seed_makes_shuffles_reproducible():
    x, y = data()
    found = []
    for seed in (1, 1, 2):
        pyggml.set_seed(seed)
        model = linear()
        model.fit(x, y, batch_size=3, epochs=2, verbose=0)
        found.append(weights(model))
    assert found[0] == found[1] != found[2]


def test_integers_drawn_from_a_seed_are_the_same_on_every_platform():
    seen = []

    class Rows(callbacks.Callback):
        """Finds out which row was trained on: SGD moves the bias by the row's own label."""

        def on_train_batch_begin(self, batch, logs=None):
            self.model.set_weights([np.zeros((1, 1)), np.zeros(1)])

        def on_train_batch_end(self, batch, logs=None):
            seen.append(round(float(self.model.get_weights()[1][0])))

    x, y = np.zeros((10, 1)), np.arange(10.0)
    model = linear(1, rate=0.5)

    def rows(**arguments):
        seen.clear()
        model.fit(x, y, batch_size=1, verbose=0, callbacks=[Rows()], **arguments)
        return list(seen)

    assert rows(seed=3) == [9, 6, 0, 2, 1, 4, 7, 5, 3, 8]
    assert rows(seed=3, initial_epoch=1) == [4, 1, 2, 8, 5, 0, 7, 9, 6, 3]
    assert sorted(rows(seed=3, validation_split=0.3, shuffle_before_split=True)) == [
        0, 1, 2, 4, 6, 7, 9]
    pyggml.set_seed(3)
    assert rows() == [9, 6, 0, 2, 1, 4, 7, 5, 3, 8]
    pyggml.set_seed(3)
    assert pyggml._random.draw_seed() == 789974133212406140


def test_a_seed_covers_dropout():
    x, y = data()
    found = []
    for seed in (1, 1, 2):
        model = pyggml.Sequential([pyggml.Input((3,)), layers.Dropout(0.5), layers.Dense(1)])
        model.compile("sgd", "mse")
        model.set_weights([np.ones((3, 1)), np.zeros(1)])
        model.fit(x, y, shuffle=False, seed=seed, verbose=0)
        found.append(weights(model))
    assert found[0] == found[1] != found[2]


def test_the_split_takes_the_tail_and_it_never_reaches_training():
    x, y = data(10)
    x[7:] = 1e6  # would be seen
    split, cut = linear(), linear()
    history = split.fit(x, y, validation_split=0.3, batch_size=4, epochs=2, seed=1, verbose=0)
    cut.fit(x[:7], y[:7], batch_size=4, epochs=2, seed=1, verbose=0)
    assert weights(split) == weights(cut)
    assert history.history["val_loss"][1] == pytest.approx(split.evaluate(x[7:], y[7:]), rel=1e-6)


def test_shuffle_before_split_validates_on_rows_drawn_by_the_seed():
    x, y = data(10)
    model = linear(rate=0)
    history = model.fit(x, y, validation_split=0.3, shuffle_before_split=True, seed=4, verbose=0)
    order = np.random.Generator(np.random.PCG64(4)).permutation(10)
    for name, rows in (("loss", order[:7]), ("val_loss", order[7:])):
        assert history.history[name][0] == pytest.approx(model.evaluate(x[rows], y[rows]), rel=1e-6)


@pytest.mark.parametrize(("n", "share"), [(5, 0.3), (10, 0.9), (100, 0.1), (3, 0.5)])
def test_the_split_has_keras_row_counts(n, share):
    x, y = data(n)
    seen = []
    model = linear()
    model.fit(x, y, validation_split=share, batch_size=1, verbose=0, callbacks=[
        callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))])
    assert len(seen) == int(n * (1 - share) + 1e-9)


def test_a_split_carries_sample_weights_along():
    x, y = data(10)
    w = np.arange(10) / 10
    model = linear(rate=0)
    history = model.fit(x, y, sample_weight=w, validation_split=0.4, verbose=0).history
    assert history["val_loss"][0] == pytest.approx(
        model.evaluate(x[6:], y[6:], sample_weight=w[6:]), rel=1e-6)


# ---- weights by class -------------------------------------------------------------------------

def classifier(loss="sparse_categorical_crossentropy"):
    return linear(3, 3, loss=loss)


@pytest.mark.parametrize("one_hot", [False, True])
def test_class_weight_is_a_sample_weight_by_label(one_hot):
    x, _ = data(12)
    labels = np.arange(12) % 3
    table = {0: 0.5, 1: 2.0, 2: 1.0}
    sample = np.linspace(0, 1, 12)
    y = np.eye(3)[labels] if one_hot else labels
    loss = "categorical_crossentropy" if one_hot else "sparse_categorical_crossentropy"
    found, expected = [], []
    for given in (None, sample):
        by_class = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(3, "softmax")])
        by_class.compile("sgd", loss)
        by_row = by_class.copy()
        product = np.array([table[i] for i in labels]) * (1 if given is None else given)
        by_class.fit(x, y, class_weight=table, sample_weight=given, seed=1, verbose=0)
        by_row.fit(x, y, sample_weight=product, seed=1, verbose=0)
        found.append(weights(by_class))
        expected.append(weights(by_row))
    assert found == expected


def test_class_weight_of_lazy_labels_and_of_generators():
    x, _ = data(12)
    y, table = np.arange(12) % 3, {0: 0.5, 1: 2.0, 2: 1.0}
    found = []
    for source in ("memory", "lazy", "generator"):
        model = classifier()
        if source == "generator":
            model.fit_generator([(x[:6], y[:6]), (x[6:], y[6:])], batch_size=6,
                                class_weight=table, verbose=0)
        else:
            lazy = source == "lazy"
            model.fit(Slices(x) if lazy else x, Slices(y) if lazy else y, batch_size=6,
                      class_weight=table, shuffle=False, verbose=0)
        found.append(weights(model))
    assert found.count(found[0]) == 3


def test_labels_left_out_are_asked_for():
    with pytest.raises(ValueError, match="y must be given"):
        linear().fit(np.ones((4, 3)), verbose=0)
    with pytest.raises(ValueError, match="x must be given"):
        linear().fit(verbose=0)


def test_class_weight_does_not_count_in_validation():
    x, _ = data(12)
    y = np.arange(12) % 3
    model = classifier()
    history = model.fit(x, y, class_weight={0: 9, 1: 9, 2: 9}, validation_split=0.5,
                        verbose=0).history
    assert history["val_loss"][0] == pytest.approx(model.evaluate(x[6:], y[6:]), rel=1e-6)


@pytest.mark.parametrize(("table", "message"), [
    ({0: 1.0, 1: 1.0}, "no weight for class 2"), ({0: 1.0, 1: -1.0, 2: 1}, "not negative"),
    ({"a": 1.0}, "as keys"), ({}, "must be a dict"), ([1, 1, 1], "must be a dict"),
])
def test_class_weights_that_do_not_fit_are_refused(table, message):
    x, _ = data(12)
    with pytest.raises((ValueError, TypeError), match=message):
        classifier().fit(x, np.arange(12) % 3, class_weight=table, verbose=0)


@pytest.mark.parametrize("row", [[1, 1, 0], [0, 0, 0]])
def test_class_weight_needs_exactly_one_label_a_row(row):
    x, _ = data(4)
    y = np.array([[1, 0, 0], [0, 1, 0], row, [0, 0, 1]], float)
    model = classifier("binary_crossentropy")
    before = weights(model)
    with pytest.raises(ValueError, match=r"class_weight needs one label a row, y has .* in row 2"):
        model.fit(x, y, class_weight={0: 1, 1: 2, 2: 3}, verbose=0)
    assert weights(model) == before
    soft = np.array([[0.8, 0.1, 0.1], [0.2, 0.3, 0.5], [0.1, 0.9, 0], [0.4, 0.3, 0.3]])
    by_class, by_row = [classifier("categorical_crossentropy") for _ in range(2)]
    by_row.set_weights(by_class.get_weights())
    assert by_class.train_on_batch(x, soft, class_weight={0: 1, 1: 2, 2: 3}) == (
        by_row.train_on_batch(x, soft, np.array([1, 3, 2, 1])))


@pytest.mark.parametrize("given", [np.ones(1), np.float64(2.0), np.ones((1, 1))])
def test_class_weight_does_not_let_sample_weights_be_broadcast(given):
    x, _ = data(12)
    for method in ("fit", "train_on_batch"):
        more = {"verbose": 0} if method == "fit" else {}
        with pytest.raises(ValueError, match="sample_weight must have an entry for each"):
            getattr(classifier(), method)(x, np.arange(12) % 3, sample_weight=given,
                                          class_weight={0: 1, 1: 2, 2: 3}, **more)


def test_class_weight_takes_labels_by_the_outputs_name():
    x, y = data(12)[0], np.arange(12) % 3
    found = []
    for by_name in (False, True):
        model = classifier()
        name = model.output_names[0]
        found.append(model.train_on_batch(
            x, {name: y} if by_name else y, {name: y + 1.0} if by_name else y + 1.0,
            {0: 1, 1: 2, 2: 3}))
    assert found[0] == found[1]


# ---- accumulation -----------------------------------------------------------------------------

@pytest.mark.parametrize("n", [24, 20, 13])
def test_windows_equal_large_batches_to_the_last_short_one(n):
    x, y = data(n)
    large, windows = linear(), linear()
    large.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0)
    windows.fit(x, y, batch_size=4, nbatch_logical=12, epochs=2, shuffle=False, verbose=0)
    for a, b in zip(large.get_weights(), windows.get_weights(), strict=True):
        assert a == pytest.approx(b, rel=1e-5, abs=1e-6)
    assert windows.compiled.trainer.n_updates == large.compiled.trainer.n_updates


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("hook", ["on_epoch_end", "on_train_batch_end"])
def test_a_callback_that_trains_on_other_batches_leaves_those_of_fit_as_they_are(hook, weighted):
    x, y = data(12)
    more = (np.full(3, 0.5),) if weighted else ()
    model = linear()
    by_hand = model.copy()
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0, callbacks=[
        callbacks.LambdaCallback(**{hook: lambda n, logs: model.train_on_batch(
            x[:3], y[:3], *more)})])
    for _ in range(2):
        for start in (0, 4, 8):
            by_hand.train_on_batch(x[start:start + 4], y[start:start + 4])
            if start == 8 or hook == "on_train_batch_end":
                by_hand.train_on_batch(x[:3], y[:3], *more)
    assert weights(model) == weights(by_hand)


@pytest.mark.parametrize("hook", ["on_epoch_end", "on_train_batch_end"])
def test_a_callback_that_compiles_the_model_is_told_that_fit_cannot_follow(hook):
    x, y = data(12)
    model = linear()
    with pytest.raises(RuntimeError, match="the model was compiled anew while fit ran"):
        model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[callbacks.LambdaCallback(
            **{hook: lambda n, logs: model.compile("adam", "mse")})])
    model.fit(x, y, verbose=0)


def test_a_generator_that_compiles_the_model_is_told_that_fit_cannot_follow():
    x, y = data(12)
    model = linear()

    def batches():
        yield x[:4], y[:4]
        model.compile("adam", "mae")
        yield x[4:8], y[4:8]

    with pytest.raises(RuntimeError, match="the model was compiled anew while fit ran"):
        model.fit(generator=batches, batch_size=4, verbose=0)
    model.fit(x, y, verbose=0)


def test_a_callback_that_compiles_the_model_leaves_the_losses_that_evaluate_began_with():
    # Labels of one kind read by the graph of another would lie beyond the end of its memory.
    run_child("""
        import itertools
        import numpy as np
        import pyggml
        from pyggml import callbacks, layers

        rng = np.random.default_rng(0)
        x, classes = rng.normal(size=(32, 3)), rng.integers(0, 3, 32)
        labels = {"mse": rng.random((32, 3)), "sparse_categorical_crossentropy": classes,
                  "categorical_crossentropy": np.eye(3)[classes]}

        def make(loss):
            model = pyggml.Sequential([pyggml.Input((3,)), layers.Dense(3, "softmax")])
            model.compile(pyggml.optimizers.SGD(0.0), loss)
            model.set_weights([np.eye(3), np.zeros(3)])
            return model

        hooks = ("on_test_begin", "on_test_batch_begin", "on_test_batch_end")
        for (loss, other), hook in itertools.product(itertools.permutations(labels, 2), hooks):
            y = labels[loss]
            wanted = make(loss).evaluate(x, y)
            for how in range(3):
                model = make(loss)
                compiling = [callbacks.LambdaCallback(**{hook: lambda *given: model.compile(
                    "sgd", other, metrics=["accuracy"])})]
                if how == 0:
                    found = model.evaluate(x, y, 8, callbacks=compiling)
                elif how == 1:
                    found = model.evaluate(((x[i:i + 8], y[i:i + 8]) for i in range(0, 32, 8)),
                                           callbacks=compiling)
                else:
                    found = model.fit(x, y, validation_data=(x, y), validation_batch_size=8,
                                      verbose=0, callbacks=compiling).history["val_loss"][0]
                assert abs(found - wanted) < 1e-5, (loss, other, hook, how, found, wanted)
    """)


@pytest.mark.parametrize("what", ["compile", "train", "windows"])
def test_an_array_that_compiles_or_trains_as_it_is_read_ends_the_call(what):
    x, y = data(12)
    model = linear()
    tricks = {
        "compile": lambda: model.compile("sgd", "mse"),
        "train": lambda: model.train_on_batch(x[:3], y[:3], sample_weight=np.ones(3)),
        "windows": lambda: model.fit(x, y, batch_size=4, nbatch_logical=8, verbose=0)}

    class Meddling:
        shape, dtype, ndim = (4, 3), np.dtype("float32"), 2

        def __array__(self, *arguments, **options):
            tricks[what]()
            return x[:4]

    with pytest.raises(RuntimeError, match="compiled or trained while the arrays of this batch"):
        model.train_on_batch(Meddling(), y[:4])
    assert np.isfinite(model.train_on_batch(x[:4], y[:4]))


def test_other_batches_cannot_come_between_those_of_a_window():
    x, y = data(12)
    model = linear()
    with pytest.raises(RuntimeError, match="4 of 8 rows of a window wait for their update"):
        model.fit(x, y, batch_size=4, nbatch_logical=8, verbose=0, callbacks=[
            callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: model.train_on_batch(
                x[:3], y[:3]))])
    model.train_on_batch(x[:3], y[:3])  # the window is gone


def test_weights_of_one_a_row_may_be_a_column_for_outputs_of_any_width():
    x, y = data(6)
    w = np.array([0.0, 0.5, 1, 2, 0.25, 1])
    inputs = pyggml.Input((3,))
    model = pyggml.Model(inputs, [layers.Dense(1)(inputs), layers.Dense(2)(inputs)])
    model.compile("sgd", "mse")
    labels = [y, np.stack([y, -y], axis=1)]
    errors = [((p - t.reshape(6, -1)) ** 2).mean(axis=1)
              for p, t in zip(model.predict(x), labels, strict=True)]
    wanted = sum((w * e).mean() for e in errors)
    column = w[:, np.newaxis]
    elements = [column, column.repeat(2, 1)]
    for given in ([w, w], [column, column], [column, w], [w, column], elements):
        assert model.evaluate(x, labels, sample_weight=given)[0] == pytest.approx(wanted, rel=1e-6)
        assert model.copy().train_on_batch(x, labels, sample_weight=given)[0] == pytest.approx(
            wanted, rel=1e-6)
    with pytest.raises(ValueError, match="one a row, or one an element, for all outputs"):
        model.evaluate(x, labels, sample_weight=[w, column.repeat(2, 1)])


def test_batches_may_have_their_weights_as_vectors_and_as_columns():
    x, y = data(6)
    w = np.array([0.0, 0.5, 1, 2, 0.25, 1])
    vector, column = (x, y, w), (x, y, w[:, np.newaxis])
    found = []
    for batches in ([vector, vector, vector], [vector, column, vector], [column, vector, column]):
        model = linear()
        model.fit_generator(iter(batches), batch_size=6, verbose=0)
        found.append(weights(model))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("fails", [False, True])
def test_a_fit_within_an_accumulation_window_leaves_it_open(fails):
    x, y = data(32)

    def train(inner):
        model = linear()

        def fit(batch, logs):
            if batch % 4 == 1 and inner:
                rate, model.optimizer.learning_rate = model.optimizer.learning_rate, 0.0
                with contextlib.suppress(ZeroDivisionError):
                    model.fit(x[:8], y[:8], batch_size=4, verbose=0, callbacks=[
                        callbacks.LambdaCallback(
                            on_epoch_end=lambda epoch, logs: 1 / (0 if fails else 1))])
                model.optimizer.learning_rate = rate

        model.fit(x, y, batch_size=4, nbatch_logical=16, verbose=0, shuffle=False,
                  callbacks=[callbacks.LambdaCallback(on_train_batch_end=fit)])
        return model

    alone, disturbed = train(False), train(True)
    assert weights(disturbed) == weights(alone)
    assert disturbed.compiled.trainer.n_updates == alone.compiled.trainer.n_updates + 2 * 2


@pytest.mark.parametrize("logical", [8, 16, 32])
def test_two_accumulation_windows_are_not_mixed(logical):
    x, y = data(32)
    model = linear()
    before = weights(model)

    def second(batch, logs):
        if batch == 2:
            model.fit(x, y, batch_size=4, nbatch_logical=logical, verbose=0)

    with pytest.raises(RuntimeError, match=r"12 .*rows of a window wait for their update"):
        model.fit(x, y, batch_size=4, nbatch_logical=16, verbose=0,
                  callbacks=[callbacks.LambdaCallback(on_train_batch_end=second)])
    assert weights(model) == before
    model.fit(x[:8], y[:8], batch_size=4, nbatch_logical=8, verbose=0)  # the window is gone
    assert model.compiled.trainer.n_updates == 1


def test_a_window_cannot_become_shorter_than_what_waits_in_it():
    x, y = data(4)
    with pyggml.Trainer(linear(), 4, nbatch_logical=16) as trainer:
        for _ in range(3):
            trainer.step(x, y)
        with pytest.raises(RuntimeError, match="12 of 16 rows of a window wait for their update: "
                                               "nbatch_logical=8"):
            trainer._configure(4, 8, None)
        trainer.step(x, y)
        assert trainer.n_updates == 1


@pytest.mark.parametrize("form", ["callable", "sequence", "lazy"])
@pytest.mark.parametrize("mine", [False, True])
@pytest.mark.parametrize(("size", "logical"), [(4, 4), (4, 16), (3, 4)])
def test_batches_that_train_as_they_are_made_leave_those_of_fit_as_they_are(form, mine, size,
                                                                            logical):
    x, y = data(32)
    w = np.linspace(0, 2, 32) if mine else None
    other = None if mine else np.full(size, 0.5)

    def train(between):
        model = linear()
        starts = iter(range(0, 33, 4))

        def call():
            start = next(starts)
            return make(start) if start < 32 else None

        def make(start):
            rows = slice(start, start + 4)
            if between:
                rate, model.optimizer.learning_rate = model.optimizer.learning_rate, 0.0
                model.train_on_batch(x[:size], y[:size], sample_weight=other)
                model.optimizer.learning_rate = rate
            return (x[rows], y[rows]) if w is None else (x[rows], y[rows], w[rows])

        class Sequence:
            def __len__(self):
                return 8

            def __getitem__(self, i):
                return make(4 * i)

        class Lazy:
            shape, dtype, ndim = x.shape, x.dtype, 2

            def __len__(self):
                return 32

            def __getitem__(self, rows):
                if between and len(x[rows]) == 4:
                    make(0)
                return x[rows]

        options = {"batch_size": 4, "nbatch_logical": logical, "verbose": 0}
        if form == "lazy":
            model.fit(Lazy(), y, sample_weight=w, shuffle=False, **options)
        else:
            model.fit(generator=Sequence() if form == "sequence" else call, **options)
        return model

    alone, disturbed = train(False), train(True)
    assert weights(disturbed) == weights(alone)
    assert disturbed.compiled.trainer.n_updates == alone.compiled.trainer.n_updates + 8


def test_statistics_are_calibrated_after_a_callback_trained_with_other_weights():
    x, y = data(12)
    model = pyggml.Sequential([pyggml.Input((3,)), layers.BatchNormalization(), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, y, sample_weight=np.ones(12), verbose=0,
              calibration_generator=iter([(x, y)]),
              callbacks=[callbacks.LambdaCallback(
                  on_train_end=lambda logs: model.train_on_batch(x, y))])
    assert model.layers[0].get_weights()[2] == pytest.approx(x.mean(axis=0), abs=1e-6)


def test_a_window_that_an_error_left_open_is_forgotten():
    x, y = data(12)

    class Fail(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise OSError

    model, fresh = linear(), linear()
    with pytest.raises(OSError):
        model.fit(x + 5, y, batch_size=4, nbatch_logical=12, verbose=0, callbacks=[Fail()])
    for m in (model, fresh):
        m.fit(x, y, batch_size=4, nbatch_logical=12, shuffle=False, verbose=0)
    assert weights(model) == weights(fresh)


def test_optimizer_state_lives_on_between_calls_and_compile_forgets_it():
    x, y = data()
    once, twice, anew = linear(), linear(), linear()
    for model in (once, twice, anew):
        model.compile("adam", "mse")
    once.fit(x, y, epochs=4, shuffle=False, verbose=0)
    for model in (twice, anew):
        model.fit(x, y, epochs=2, shuffle=False, verbose=0)
    anew.compile("adam", "mse")
    for model in (twice, anew):
        model.fit(x, y, epochs=2, shuffle=False, verbose=0)
    assert weights(once) == weights(twice) != weights(anew)


# ---- sources ----------------------------------------------------------------------------------

class Slices:
    """An array that can only be sliced, as files can, and counts what is read at once."""

    def __init__(self, array, fancy=True):
        self.array, self.fancy = array, fancy
        self.shape, self.dtype = array.shape, array.dtype
        self.most = 0

    def __getitem__(self, rows):
        if not isinstance(rows, slice):
            assert self.fancy and (np.diff(rows) > 0).all()
        found = self.array[rows]
        self.most = max(self.most, len(found))
        return found

    def __array__(self, *arguments, **options):
        raise AssertionError("read as a whole")

    def __len__(self):
        return len(self.array)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
def test_lazy_arrays_train_as_arrays_in_memory_and_are_never_read_whole(shuffle, workers):
    x, y = data(1000)
    expected, model = linear(), linear()
    arguments = {"batch_size": 8, "epochs": 2, "shuffle": shuffle, "seed": 3,
                 "validation_split": 0.2, "verbose": 0, "sample_weight": np.linspace(0, 1, 1000)}
    h1 = expected.fit(x, y, **arguments).history
    lazy = Slices(x)
    h2 = model.fit(lazy, y, workers=workers, **arguments).history
    assert weights(model) == weights(expected)
    assert h1 == h2
    assert lazy.most <= 16
    assert model.predict(lazy).tobytes() == expected.predict(x).tobytes()
    assert model.evaluate(lazy, Slices(y)) == expected.evaluate(x, y)


def test_h5py_datasets(tmp_path):
    h5py = pytest.importorskip("h5py")
    x, y = data(100)
    expected, model = linear(), linear()
    expected.fit(x, y, seed=1, batch_size=8, epochs=2, verbose=0)
    with h5py.File(tmp_path / "data.h5", "w") as f:
        f["x"], f["y"] = x, y
        model.fit(f["x"], f["y"], seed=1, batch_size=8, epochs=2, verbose=0)
        assert model.evaluate(f["x"], f["y"]) == expected.evaluate(x, y)
    assert weights(model) == weights(expected)


def test_zarr_arrays(tmp_path):
    zarr = pytest.importorskip("zarr")
    x, y = data(100)
    expected, model = linear(), linear()
    expected.fit(x, y, seed=1, batch_size=8, epochs=2, verbose=0)
    stored = [zarr.create_array(str(tmp_path / name), shape=a.shape, chunks=(7, *a.shape[1:]),
                                dtype=a.dtype) for name, a in (("x", x), ("y", y))]
    for array, values in zip(stored, (x, y), strict=True):
        array[:] = values
    model.fit(*stored, seed=1, batch_size=8, epochs=2, verbose=0, workers=1)
    assert model.evaluate(*stored) == expected.evaluate(x, y)
    assert weights(model) == weights(expected)


def test_labels_of_lazy_arrays_are_checked_before_training():
    x, _ = data(10)
    model = classifier()
    before = weights(model)
    with pytest.raises(ValueError, match="y holds 7 in row 9"):
        model.fit(Slices(x), Slices(np.array([0, 1, 2] * 3 + [7])), shuffle=False, batch_size=2,
                  verbose=0)
    assert weights(model) == before


def test_pandas_frames_and_series():
    pandas = pytest.importorskip("pandas")
    x, y = data(30)
    frame = pandas.DataFrame({"a": x[:, 0], "b": x[:, 1].astype(np.float64), "c": x[:, 2]})
    expected, model = linear(), linear()
    expected.fit(x, y, seed=1, verbose=0)
    model.fit(frame, pandas.Series(y), seed=1, verbose=0)
    assert weights(model) == weights(expected)
    with pytest.raises(TypeError, match="column 'd'"):
        model.fit(frame.assign(d="text"), y, verbose=0)


def test_masked_arrays_with_masked_elements_are_refused():
    x, y = data(4)
    with pytest.raises(ValueError, match="masked array with 1 masked"):
        linear().fit(np.ma.masked_greater(x, np.sort(x.ravel())[-2]), y, verbose=0)


def test_masked_arrays_are_refused_by_every_method_and_taken_without_a_mask():
    x, y = data(4)
    bad = np.ma.masked_greater(x, np.sort(x.ravel())[-2])
    model = linear()
    with pyggml.Trainer(model, 4, loss_mask=1) as trainer:
        calls = [lambda a: model.predict(a), lambda a: model.evaluate(a, y),
                 lambda a: model.train_on_batch(a, y), lambda a: trainer.step(a, y),
                 lambda a: trainer.eval(a, y), lambda a: trainer.predict(a),
                 lambda a: trainer.step_many(a, y, [[0, 1, 2, 3]]),
                 lambda a: trainer.calibrate_bn(a)]
        for call in calls:
            with pytest.raises(ValueError, match="x is a masked array with 1 masked"):
                call(bad)
            call(np.ma.array(x))
            with pytest.raises(TypeError, match="x must be an array of real numbers"):
                call([[1.0], [1.0, 2.0]])
        steps = trainer.n_steps
        with pytest.raises(ValueError, match="y is a masked array"):
            trainer.step(x, np.ma.masked_greater(y, np.sort(y.ravel())[0]))
        with pytest.raises(ValueError, match="sample_weight is a masked array"):
            trainer.step(x, y, np.ma.masked_equal([1.0, 2, 3, 4], 3))
        with pytest.raises(TypeError, match="sample_weight must be an array of real numbers"):
            model.fit(x, y, sample_weight=[[1.0], [1.0, 2.0]], verbose=0)
        with pytest.raises(TypeError, match="idx must be an array"):
            trainer.step_many(x, y, [[0, 1, 2, 3], [1, 2]])
        assert trainer.n_steps == steps


def test_two_inputs_and_two_outputs_by_list_and_by_dict():
    a, b = pyggml.Input((2,), name="a"), pyggml.Input((3,), name="b")
    p = layers.Dense(1, name="p")(a)
    q = layers.Dense(2, name="q")(b)
    model = pyggml.Model([a, b], {"p": p, "q": q})
    model.compile("sgd", {"p": "mse", "q": "mse"}, metrics={"q": ["mae"]},
                  loss_weights={"p": 2.0, "q": 0.5})
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(9, 2)), rng.normal(size=(9, 3))]
    y = [rng.normal(size=(9, 1)), rng.normal(size=(9, 2))]
    other = model.copy()
    h1 = model.fit(x, y, batch_size=4, seed=1, verbose=0, validation_split=0.4).history
    h2 = other.fit({"b": x[1], "a": x[0]}, {"q": y[1], "p": y[0]}, batch_size=4, seed=1,
                   verbose=0, validation_split=0.4).history
    assert h1 == h2
    assert weights(model) == weights(other)
    assert list(h1) == ["loss", "p_loss", "q_loss", "q_mae", "val_loss", "val_p_loss",
                        "val_q_loss", "val_q_mae"]
    assert h1["loss"][0] == pytest.approx(2 * h1["p_loss"][0] + 0.5 * h1["q_loss"][0], rel=1e-6)


def test_batches_of_metrics_equal_one_batch_of_them():
    x, _ = data(3000)
    y = np.arange(3000) % 3
    model = linear(3, 3, rate=0, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    expected = (model.predict(x).argmax(axis=1) == y).mean()
    for size in (7, 32, 2999):
        history = model.fit(x, y, batch_size=size, verbose=0)
        assert history.history["accuracy"] == [pytest.approx(expected, abs=1e-12)]
        assert model.evaluate(x, y, size)[1] == pytest.approx(expected, abs=1e-12)


# ---- arguments --------------------------------------------------------------------------------

@pytest.mark.parametrize(("arguments", "error"), [
    ({"batch_size": 0}, ValueError), ({"batch_size": 2.5}, TypeError), ({"epochs": 1.5}, TypeError),
    ({"verbose": 3}, ValueError), ({"validation_split": 1.0}, ValueError),
    ({"validation_split": -0.1}, ValueError), ({"shuffle": "batch"}, TypeError),
    ({"callbacks": [print]}, TypeError), ({"steps_per_epoch": 0}, ValueError),
    ({"validation_freq": 0}, ValueError), ({"workers": -1}, ValueError),
    ({"workers": 2**40}, ValueError), ({"seed": -1}, ValueError),
    ({"nbatch_logical": 33}, ValueError), ({"validation_data": (1, 2, 3, 4)}, ValueError),
    ({"validation_data": np.ones(3)}, ValueError),
    ({"validation_split": 0.5, "validation_data": (1, 2)}, ValueError),
])
def test_bad_arguments_are_refused_by_name_and_change_nothing(arguments, error):
    x, y = data()
    model = linear()
    before = weights(model)
    with pytest.raises(error, match=next(iter(arguments)).split("_")[0]):
        model.fit(x, y, **({"verbose": 0} | arguments))
    assert weights(model) == before


def test_steps_per_epoch_of_arrays():
    x, y = data()
    model = linear()
    model.fit(x, y, batch_size=4, steps_per_epoch=2, verbose=0)
    assert model.compiled.trainer.n_steps == 2
    with pytest.warns(RuntimeWarning, match="gave 5 batches in epoch 0, but steps_per_epoch is 6"):
        model.fit(x, y, batch_size=4, steps_per_epoch=6, verbose=0)


def test_validation_freq_leaves_epochs_out():
    x, y = data()
    history = linear().fit(x, y, epochs=5, validation_split=0.2, validation_freq=2, verbose=0)
    assert len(history.history["loss"]) == 5
    assert len(history.history["val_loss"]) == 2


# ---- progress ---------------------------------------------------------------------------------

def test_lines_where_there_is_no_terminal(capsys):
    x, y = data()
    linear(metrics=["mae"]).fit(x, y, epochs=2)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:2] for line in lines] == [["epoch", "1/2"], ["epoch", "2/2"]]
    assert all(" loss " in line and " mae " in line and " lr 0.05" in line for line in lines)
    linear().fit(x, y, verbose=0)
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_bar_on_a_terminal():
    import os
    import pty

    code = textwrap.dedent("""
        import numpy as np, pyggml, threading
        model = pyggml.Sequential([pyggml.Input((3,)), pyggml.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((64, 3)), np.ones(64), epochs=2, batch_size=8)
        assert threading.active_count() == 1
    """)
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", code], stderr=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(ours)
    assert child.wait(60) == 0
    shown = text.decode().replace("\r", "\n")
    assert "epoch 1/2: 100%" in shown and "epoch 2/2: 100%" in shown
    assert "8/8" in shown and "loss" in shown and "lr 0.001" in shown
