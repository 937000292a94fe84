"""Trainers that share weights by reference, and weights frozen for some of them."""

import gc
import threading

import numpy as np
import pytest
from child import run_child
from trainer_nets import dense, same

import pyggml
from pyggml import layers, ops


@pytest.fixture(autouse=True)
def one_thread():
    before = pyggml.get_num_threads()
    pyggml.set_num_threads(1)
    yield
    pyggml.set_num_threads(before)


class Negative(layers.Layer):
    def call(self, x):
        return ops.negative(x)


class Sum(layers.Layer):
    def call(self, x):
        return ops.add(x[0], x[1])


def actor_critic(optimizer="sgd"):
    """Critic trainer, and an actor trainer through the frozen critic, as in DDPG."""
    pyggml.set_seed(2)
    state, action = pyggml.Input((3,)), pyggml.Input((1,))
    h = Sum()([layers.Dense(8, "tanh")(state), layers.Dense(8, "tanh", use_bias=False)(action)])
    critic = pyggml.Model([state, action], layers.Dense(1)(h))
    critic.compile(optimizer, "mse")
    critic_trainer = pyggml.Trainer(critic, 4)
    seen = pyggml.Input((3,))
    policy = layers.Dense(1, "tanh")
    critic.trainable = False
    actor = pyggml.Model(seen, Negative()(critic([seen, policy(seen)])))
    actor.compile(optimizer, "output")
    return critic_trainer, pyggml.Trainer(actor, 4, share=critic_trainer), policy


def data():
    rng = np.random.default_rng(0)
    return (rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=(4, 1)).astype(np.float32),
            rng.normal(size=(4, 1)).astype(np.float32))


def test_a_frozen_critic_in_the_actor_follows_its_trainer():
    state, action, q = data()
    critic, actor, policy = actor_critic()
    before = actor.predict(state)
    for _ in range(5):
        critic.step([state, action], q)
    after = actor.predict(state)
    assert not np.array_equal(before, after)
    # The actor's output is -Q(state, policy(state)) with the critic's present weights.
    kernel, bias = policy.get_weights()
    chosen = np.tanh(state @ kernel + bias)
    np.testing.assert_allclose(after, -critic.predict([state, chosen]), rtol=1e-5, atol=1e-6)


def test_the_actor_moves_its_own_weights_only():
    state, action, q = data()
    critic, actor, _ = actor_critic("adam")
    critic_before = critic.get_weights()
    losses = [actor.step(state) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert same(critic.get_weights(), critic_before)
    assert len(actor.gradients(state)) == 2
    critic.step([state, action], q)
    assert not same(critic.get_weights(), critic_before)


def test_the_actors_gradient_comes_through_the_critic():
    state, _, _ = data()
    _, actor, _ = actor_critic()
    views = actor.get_weights(copy=False)
    gradients = actor.gradients(state)
    for name, g in gradients.items():
        view = views[list(actor._target()[1]).index(name)]
        for i in np.ndindex(g.shape):
            kept, h = view[i], 1e-2
            view[i] = kept + h
            up = actor.eval(state)
            view[i] = kept - h
            down = actor.eval(state)
            view[i] = kept
            assert (up - down) / (2 * h) == pytest.approx(g[i], rel=2e-2, abs=1e-4)


def test_freezing_is_captured_when_a_trainer_is_made():
    """Also for graphs that are built later: other batch sizes, gradients, accumulation."""
    state, action, q = data()
    critic, actor, _ = actor_critic()
    assert not critic.compiled.trainable
    assert len(critic.gradients([state, action], q)) == 5  # a graph made after the freezing
    before = critic.get_weights()
    critic._configure(4, 8, None)
    critic.step([state, action], q)
    critic.step([state, action], q)
    assert not same(critic.get_weights(), before)
    critic.compiled.trainable = True  # and the other way round
    frozen = critic.get_weights()
    actor._configure(4, 8, None)
    actor.step(state)
    actor.step(state)
    assert same(critic.get_weights(), frozen)
    assert len(actor.gradients(state)) == 2


def test_both_train_what_is_trainable_in_both():
    """Two heads on one trunk, each with a trainer of its own."""
    pyggml.set_seed(0)
    x = pyggml.Input((4,))
    trunk = layers.Dense(6, "tanh")
    models = [pyggml.Model(x, layers.Dense(1)(trunk(x))) for _ in range(2)]
    for model in models:
        model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(8, 4)), rng.normal(size=(8, 1))
    with pyggml.Trainer(models[0], 8) as first, \
            pyggml.Trainer(models[1], 8, share=first) as second:
        for mover, watcher in ((first, second), (second, first)):
            before = watcher.get_weights()
            mover.step(a, b)
            after = watcher.get_weights()
            assert same(mover.get_weights()[:2], after[:2])
            assert not same(before[:2], after[:2])
            assert same(before[2:], after[2:])  # its own head stays


def test_weights_live_on_after_either_is_freed():
    state, action, q = data()
    critic, actor, _ = actor_critic()
    wanted = actor.predict(state)
    critic.free()
    del critic
    gc.collect()
    assert np.array_equal(actor.predict(state), wanted)
    actor.step(state)

    critic, actor, _ = actor_critic()
    actor.free()
    critic.step([state, action], q)
    assert np.isfinite(critic.predict([state, action])).all()


def test_a_snapshot_of_a_sharing_trainer_shares_nothing():
    state, action, q = data()
    critic, actor, _ = actor_critic()
    snapshot = actor.snapshot()
    wanted = snapshot.predict(state)
    critic.step([state, action], q)
    assert np.array_equal(snapshot.predict(state), wanted)


def test_several_trainers_can_be_shared_from():
    x = pyggml.Input((4,))
    one, two = layers.Dense(3), layers.Dense(3)
    parts = [pyggml.Model(x, layer(x)) for layer in (one, two)]
    both = pyggml.Model(x, layers.Dense(1)(Sum()([one(x), two(x)])))
    for model in (*parts, both):
        model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(8, 4)), rng.normal(size=(8, 3))
    with pyggml.Trainer(parts[0], 8) as p, pyggml.Trainer(parts[1], 8) as q, \
            pyggml.Trainer(both, 8, share=[p, q]) as whole, \
            pyggml.Trainer(both, 8, share=whole) as again:
        p.step(a, b)
        q.step(a, b)
        assert same(whole.get_weights()[:4], p.get_weights() + q.get_weights())
        assert same(again.get_weights(), whole.get_weights())
        again.step(a, b[:, :1])
        assert same(again.get_weights(), whole.get_weights())
        assert same(whole.get_weights()[:4], p.get_weights() + q.get_weights())


def test_what_cannot_be_shared_is_refused():
    model = dense()
    with pyggml.Trainer(model, 8) as a, pyggml.Trainer(model, 8) as b:
        with pytest.raises(ValueError, match=r"two trainers.*of their own"):
            pyggml.Trainer(model, 8, share=[a, b])
        with pytest.raises(ValueError, match="no weight in common"):
            pyggml.Trainer(dense(), 8, share=a)
        with pytest.raises(TypeError, match="Trainer"):
            pyggml.Trainer(model, 8, share=model)
    with pytest.raises(RuntimeError, match="freed"):
        pyggml.Trainer(model, 8, share=a)


def test_threads_that_step_sharing_trainers_do_not_block_or_tear():
    """Both orders of nesting at once; a deadlock would run into the time limit."""
    out = run_child("""
        import threading
        import numpy as np
        import pyggml
        from test_trainer_share import actor_critic, data
        pyggml.set_num_threads(2)
        state, action, q = data()
        critic, actor, _ = actor_critic()
        target = critic.snapshot()
        work = [lambda: critic.step([state, action], q), lambda: actor.step(state),
                lambda: actor.predict(state), lambda: critic.update_target(target, 0.5),
                lambda: critic.predict([state, action]), lambda: target.predict([state, action])]
        errors = []

        def repeat(function):
            try:
                for _ in range(50):
                    function()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=repeat, args=(f,)) for f in work]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        assert (critic.n_steps, actor.n_steps) == (50, 50)
        print("done")
    """)
    assert out == "done\n"


def test_shared_steps_are_whole_steps():
    """Whatever the interleaving, the critic ends where it would have without the other thread."""
    state, action, q = data()
    alone, _, _ = actor_critic()
    wanted = [alone.step([state, action], q) for _ in range(200)]
    critic, actor, _ = actor_critic()
    thread = threading.Thread(target=lambda: [actor.step(state) for _ in range(200)])
    thread.start()
    got = [critic.step([state, action], q) for _ in range(200)]
    thread.join()
    assert got == wanted
    assert same(critic.get_weights(), alone.get_weights())
