//! The handles that Elixir holds, and the end of their lives.

use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ash_agent_context_core::{
    AnswerType, Context, Fields, Follow, KeptBytes, Prices, Provider, Reading, Response,
};
use rustler::{Resource, ResourceArc};

use crate::enif;

/// A value that Elixir holds by a handle.
pub trait Held: Send + Sync + Sized + 'static {
    /// How many values of the type are alive, for tests.
    const LIVE: Option<&'static Counters> = None;

    /// Takes the value out if dropping it takes long.
    fn take_heavy(&mut self) -> Option<Self> {
        None
    }
}

/// What a handle refers to.
pub struct Holder<T: Held>(pub T);

/// The handle that NIFs take and return.
pub type Handle<T> = ResourceArc<Holder<T>>;

impl<T: Held> Resource for Holder<T> {}

impl<T: Held> Holder<T> {
    pub fn hold(value: T) -> Handle<T> {
        if let Some(live) = T::LIVE {
            live.add(1);
        }
        ResourceArc::new(Self(value))
    }
}

impl<T: Held> Drop for Holder<T> {
    /// Runs at garbage collection, mostly on a normal scheduler. Large values are freed on a thread of their own.
    fn drop(&mut self) {
        if let Some(live) = T::LIVE {
            live.add(-1);
        }
        note_freed();
        if let Some(heavy) = self.0.take_heavy() {
            bury(Box::new(heavy));
        }
    }
}

macro_rules! register {
    ($($type:ty),* $(,)?) => {
        $(rustler::codegen_runtime::inventory::submit!(
            rustler::codegen_runtime::ResourceRegistration::new::<Holder<$type>>()
        );)*
    };
}

register! { Context, Response, Prices, AnswerType, Follow, Fields, Vec<KeptBytes>, Vec<u8> }

impl Held for Context {
    const LIVE: Option<&'static Counters> = Some(&CONTEXTS);

    fn take_heavy(&mut self) -> Option<Self> {
        let at = self.created_at();
        let is_heavy = self.let_go();
        is_heavy.then(|| std::mem::replace(self, Self::empty("", at)))
    }
}

impl Held for Response {
    const LIVE: Option<&'static Counters> = Some(&RESPONSES);

    fn take_heavy(&mut self) -> Option<Self> {
        let nothing = || Self::neutral(&Reading::of(Provider::default()));
        self.let_go().then(|| std::mem::replace(self, nothing()))
    }
}

impl Held for Prices {}
impl Held for AnswerType {}
impl Held for Follow {}
impl Held for Fields {}
/// The bytes that the binaries of a request point into, kept as long as one of them is used.
impl Held for Vec<KeptBytes> {}
/// A text that a binary points into, so that a snapshot is not copied once more.
impl Held for Vec<u8> {}

/// So many threads have a counter of their own; all others share the last one.
const COUNTERS: usize = 64;

/// Values made minus values dropped, by thread: a single counter would move between processors with every operation.
pub struct Counters([Counter; COUNTERS]);

/// A counter with a cache line of its own.
#[repr(align(128))]
struct Counter(AtomicIsize);

thread_local! {
    static MINE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

static CONTEXTS: Counters = Counters::new();
static RESPONSES: Counters = Counters::new();

impl Counters {
    const fn new() -> Self {
        Self([const { Counter(AtomicIsize::new(0)) }; COUNTERS])
    }

    fn add(&self, change: isize) {
        let [own @ .., Counter(shared)] = &self.0;
        match own.get(MINE.with(|mine| *mine)) {
            // Only this thread writes here.
            Some(Counter(own)) => {
                own.store(own.load(Ordering::Relaxed) + change, Ordering::Relaxed)
            }
            None => drop(shared.fetch_add(change, Ordering::Relaxed)),
        }
    }
}

/// Returns the number of values of a type that are alive, for tests.
pub fn count_live<T: Held>() -> isize {
    let counts = T::LIVE.into_iter().flat_map(|live| &live.0);
    counts
        .map(|counter| counter.0.load(Ordering::Relaxed))
        .sum()
}

/// Hands a value to the thread that drops, which lives as long as the VM. Without it, the value is dropped here.
fn bury(value: Box<dyn Send>) {
    static UNDERTAKER: OnceLock<Option<Sender<Box<dyn Send>>>> = OnceLock::new();
    let undertaker = UNDERTAKER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Box<dyn Send>>();
        std::thread::Builder::new()
            .name("context_drop".to_owned())
            .spawn(move || work(&receiver))
            .ok()
            .map(|_| sender)
    });
    if let Some(undertaker) = undertaker {
        // An error gives the value back, and it is dropped here.
        let _ = undertaker.send(value);
    }
}

/// The allocator gives freed memory back to the system after a second, on whichever thread next asks it for memory. Hundreds
/// of megabytes held a scheduler for 5 to 100 ms, so the thread that drops does it earlier.
const GIVE_BACK: Duration = Duration::from_millis(500);

/// Memory was freed since the last time that free memory was given back.
static FREED: AtomicBool = AtomicBool::new(false);

/// Notes that there may be free memory for the system.
pub fn note_freed() {
    // Mostly it is set already, and reading it is cheap on any number of processors.
    if !FREED.load(Ordering::Relaxed) && !FREED.swap(true, Ordering::Relaxed) {
        bury(Box::new(()));
    }
}

/// Drops the values that come, and waits in between.
fn work(coming: &Receiver<Box<dyn Send>>) {
    while let Ok(value) = coming.recv() {
        let started = Instant::now();
        drop(value);
        while let Some(rest) = GIVE_BACK.checked_sub(started.elapsed()) {
            // An error means that the time is up, for somebody may always send.
            coming.recv_timeout(rest).map(drop).unwrap_or_default();
        }
        FREED.store(false, Ordering::Relaxed);
        enif::give_back();
    }
}
