"""Locks that pass from thread to thread in the order of asking."""

import os
import sys
import threading
import time

import pytest
from child import run_child
from pyggml._locks import Lock, Locks, together


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(1e-4)


def start(function):
    thread = threading.Thread(target=function)
    thread.start()
    return thread


@pytest.mark.parametrize("make", [Lock, lambda: Locks([Lock(), Lock()])])
def test_threads_get_it_in_the_order_of_asking(make):
    lock, order, threads = make(), [], []

    def ask(i):
        with lock:
            order.append(i)

    with lock:
        for i in range(5):
            threads.append(start(lambda i=i: ask(i)))
            wait_until(lambda i=i: lock.waiting() == i + 1)
        assert order == []
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]
    assert lock.waiting() == 0 and not lock.held()


def test_a_loop_that_takes_it_again_and_again_lets_others_in_between():
    lock, turns, stop = Lock(), [0], threading.Event()

    def loop():
        while not stop.is_set():
            with lock:
                turns[0] += 1
                time.sleep(1e-4)

    thread = start(loop)
    try:
        wait_until(lambda: turns[0] > 0)
        for _ in range(20):
            with lock:
                before = turns[0]
            lock.acquire()
            # While this thread asked the loop may have had one turn more, never two.
            assert turns[0] - before <= 2
            lock.release()
    finally:
        stop.set()
        thread.join()


def test_its_thread_may_take_it_again():
    lock = Lock()
    with lock:
        with lock:
            assert lock.held()
        assert lock.held()
        other = []
        thread = start(lambda: (lock.acquire(), other.append(1), lock.release()))
        wait_until(lambda: lock.waiting() == 1)
        with lock:
            pass
        assert other == []  # still held once
    thread.join()
    assert other == [1]


def test_only_its_thread_may_release_it():
    lock = Lock()
    with pytest.raises(RuntimeError, match="does not hold"):
        lock.release()
    with lock:
        failed = []

        def release():
            try:
                lock.release()
            except RuntimeError as error:
                failed.append(error)

        start(release).join()
        assert len(failed) == 1 and lock.held()


def test_several_are_taken_once_each_whatever_the_nesting():
    a, b = Lock(), Lock()
    both = Locks([a, b])
    nested = Locks([both, Locks([b, a]), a])
    with nested:
        assert a.held() and b.held() and both.held()
        with both:
            pass
        assert nested.held()
    assert not a.held() and not b.held()
    assert together().held() is False
    with together(both):
        assert a.held() and b.held()


def test_opposite_orders_of_nesting_do_not_block():
    a, b = Lock(), Lock()
    pairs, done = [Locks([a, b]), Locks([b, a])], []

    def work(pair):
        for _ in range(2000):
            with pair:
                pass
        done.append(1)

    threads = [start(lambda pair=pair: work(pair)) for pair in pairs * 2]
    for thread in threads:
        thread.join(60)
    assert len(done) == 4


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a waiting thread")
def test_an_interrupt_while_waiting_leaves_the_lock_usable():
    out = run_child("""
        import signal, threading, time
        from pyggml._locks import Lock, Locks
        for lock in (Lock(), Locks([Lock(), Lock()])):
            inside, leave = threading.Event(), threading.Event()

            def hold():
                with lock:
                    inside.set()
                    leave.wait()

            def late():
                with lock:
                    got.append(1)

            def interrupt(number, frame):
                raise KeyboardInterrupt

            got = []
            signal.signal(signal.SIGALRM, interrupt)
            thread = threading.Thread(target=hold)
            thread.start()
            inside.wait()
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                lock.acquire()
            except KeyboardInterrupt:
                print("interrupted", lock.waiting(), lock.held())
            other = threading.Thread(target=late)
            other.start()
            while lock.waiting() == 0:
                time.sleep(0.001)
            leave.set()
            thread.join()
            other.join()
            with lock:
                print(got, lock.held())
    """)
    assert out == "interrupted 0 False\n[1] True\n" * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_a_lock_of_a_thread_that_is_gone_is_an_error():
    out = run_child("""
        import os, threading, time, warnings
        warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
        from pyggml._locks import Lock
        theirs, mine, leave = Lock(), Lock(), threading.Event()
        inside = threading.Event()

        def hold():
            with theirs:
                inside.set()
                leave.wait()

        def wait():
            with mine:
                pass

        threads = [threading.Thread(target=hold), threading.Thread(target=wait)]
        mine.acquire()
        for thread in threads:
            thread.start()
        inside.wait()
        while mine.waiting() == 0:
            time.sleep(0.001)
        child = os.fork()
        if child == 0:
            said = []
            for _ in range(2):  # its thread is not here, and may have left half a step
                try:
                    theirs.acquire()
                except RuntimeError as error:
                    said.append("forked" in str(error))
            ok = said == [True, True] and mine.held()  # the thread that forked keeps what it held
            mine.release()  # and hands it to nobody who is gone
            reached = []
            other = threading.Thread(target=lambda: (mine.acquire(), reached.append(1)))
            other.start()
            other.join(30)
            os._exit(0 if ok and reached == [1] else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        mine.release()
        leave.set()
        for thread in threads:
            thread.join()
    """)
    assert out == "0\n"
