//! Futures that are not awaited: the waking thread polls the future, and its output goes to a callback.
//!
//! This is no executor for a program's futures. These futures wait only for the store, and their polls are
//! short. A callback runs on the thread that read the last block, or on the calling thread if there was none.
//!
//! 1. One thread at a time polls; a wake meanwhile makes it poll again.
//! 2. The driver thread reads a task's blocks: a `block_on` under which the task began reads none of them.
//! 3. A thread runs one task at a time. A task that a callback begins continues after the callback has
//!    returned, so that callbacks that begin gets do not nest.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use crate::base::sync::{Arc, Mutex};

use crate::engine::reads::local;

/// A future and its callback, in one.
type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The payload of a panic.
type Panic = Box<dyn Any + Send>;

/// Tasks that wait to be polled.
type Waiting = VecDeque<(Arc<Task>, Running)>;

struct Task {
    state: Mutex<CallbackState>,
}

enum CallbackState {
    Resting(Running),
    /// A thread polls the task, or will.
    Taken {
        woken: bool,
    },
    Over,
}

thread_local! {
    /// Tasks that wait for the present task of this thread to return. It has no destructor, so that
    /// destructors of other thread-locals can use it: it is `None` again when the last task has run.
    static WAITING: RefCell<ManuallyDrop<Option<Waiting>>> = const { RefCell::new(ManuallyDrop::new(None)) };
}

/// Runs `future`, and `callback` with its output.
pub(crate) fn run<F>(future: F, callback: impl FnOnce(F::Output) + Send + 'static)
where
    F: Future + Send + 'static,
{
    let task = Arc::new(Task { state: Mutex::new(CallbackState::Taken { woken: false }) });
    if let Err(panic) = run_or_wait(task, Box::pin(async move { callback(future.await) })) {
        resume_unwind(panic);
    }
}

/// Runs the task now and then the tasks that came to wait for it. If another task runs on this thread, queues
/// the task behind it. Returns the task's own panic once all have run.
fn run_or_wait(task: Arc<Task>, running: Running) -> Result<(), Panic> {
    let now = WAITING.with_borrow_mut(|waiting| match &mut **waiting {
        Some(waiting) => {
            waiting.push_back((task, running));
            None
        }
        None => {
            **waiting = Some(VecDeque::new());
            Some((task, running))
        }
    });
    let (mut next, mut own) = (now, None);
    while let Some((task, running)) = next {
        // A panic must not reach the other tasks.
        let polled = catch_unwind(AssertUnwindSafe(|| local::outside(|| task.poll(running))));
        if own.is_some() && polled.is_err() {
            log::error!("a callback of a get panicked");
        }
        own.get_or_insert(polled);
        next = WAITING.with_borrow_mut(|waiting| {
            let next = waiting.as_mut().and_then(VecDeque::pop_front);
            if next.is_none() {
                **waiting = None;
            }
            next
        });
    }
    own.unwrap_or(Ok(()))
}

impl Task {
    fn poll(self: &Arc<Task>, mut running: Running) {
        let waker = Waker::from(Arc::clone(self));
        let mut context = Context::from_waker(&waker);
        loop {
            if running.as_mut().poll(&mut context) == Poll::Ready(()) {
                *self.state.lock() = CallbackState::Over;
                return;
            }
            let mut state = self.state.lock();
            match &mut *state {
                CallbackState::Taken { woken } if *woken => *woken = false,
                resting => {
                    *resting = CallbackState::Resting(running);
                    return;
                }
            }
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Task>) {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, CallbackState::Taken { woken: false }) {
            CallbackState::Resting(running) => {
                drop(state);
                // The waking thread has other tasks to wake, and its own work.
                if run_or_wait(self, running).is_err() {
                    log::error!("a callback of a get panicked");
                }
            }
            CallbackState::Taken { .. } => *state = CallbackState::Taken { woken: true },
            CallbackState::Over => *state = CallbackState::Over,
        }
    }
}

#[cfg(all(loom, test))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
