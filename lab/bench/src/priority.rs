//! Who gets a processor first: what serves must not keep whoever measures it waiting.

use crate::system;

/// How nice those are that serve. A thread of lower priority gives way when another one wakes; one
/// of the same keeps its processor for a time slice, some milliseconds.
const NICE: i32 = 10;

/// From now on this thread, and those that it starts, get a processor before all other threads of
/// this process and of every process that comes from it. For those there is no way back: it takes
/// no privileges to be nice, but some to be so no longer.
///
/// Processes in sessions of their own, as those of PostgreSQL are, compete as whole sessions and
/// are as they were. What cannot be made to give way stays as it is, too; the lateness of whoever
/// measures will tell.
#[cfg(target_os = "linux")]
pub(crate) fn go_before_all_others() {
    let own = rustix::process::getpid().as_raw_nonzero().get().unsigned_abs();
    let this = rustix::thread::gettid();
    lower(own, |thread| thread != this);
    for process in system::descendants().unwrap_or_default() {
        lower(process, |_| true);
    }
}

/// Elsewhere the lateness of whoever measures has to tell.
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
            // It may have ended meanwhile.
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
        // Not the thread of the test: those of other tests would become nicer than it.
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
