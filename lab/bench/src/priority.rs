//! Sets priorities, so that threads that serve do not keep the measuring threads waiting.

use crate::system;

/// The nice value of threads that serve. A thread of lower priority gives way when another one
/// wakes. A thread of the same priority keeps its processor for a time slice of some
/// milliseconds.
const NICE: i32 = 10;

/// Gives this thread, and those that it will start, priority over all other threads of this
/// process and its descendants. Those cannot go back: raising a priority again takes
/// privileges.
///
/// Processes in sessions of their own, such as PostgreSQL's, compete as whole sessions and do
/// not change. Some others cannot be lowered either. In both cases the measured lateness of the
/// generator shows the effect.
#[cfg(target_os = "linux")]
pub(crate) fn go_before_all_others() {
    let own = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    let this = rustix::thread::gettid();
    lower(own, |thread| thread != this);
    for process in system::descendants().unwrap_or_default() {
        lower(process, |_| true);
    }
}

/// On other systems nothing is changed; the measured lateness of the generator shows the
/// effect.
#[cfg(not(target_os = "linux"))]
pub(crate) fn go_before_all_others() {}

#[cfg(target_os = "linux")]
fn lower(process: u32, chosen: impl Fn(rustix::process::Pid) -> bool) {
    let threads =
        std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    for entry in threads {
        let id = entry.file_name().to_string_lossy().parse().ok();
        let thread = id.and_then(rustix::process::Pid::from_raw);
        if let Some(thread) = thread.filter(|thread| chosen(*thread)) {
            // The thread may have ended meanwhile.
            let _ = rustix::process::setpriority_process(Some(thread), NICE);
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn all_threads_but_this_one_and_its_children_become_nice() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        // On a new thread: otherwise threads of other tests would get a lower priority than
        // this one.
        std::thread::spawn(move || {
            let (go, wait) = channel::<()>();
            let (ready, started) = channel();
            let other = std::thread::spawn(move || {
                ready.send(()).unwrap();
                wait.recv().unwrap();
                nice()
            });
            started.recv().unwrap();
            let before = nice();
            go_before_all_others();
            assert_eq!(nice(), before);
            assert_eq!(std::thread::spawn(nice).join().unwrap(), before);
            go.send(()).unwrap();
            assert_eq!(other.join().unwrap(), before.max(NICE));
        })
        .join()
        .unwrap();
    }
}
