//! Tests that Ctrl-C ends a benchmark.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn ctrl_c_ends_a_command_within_two_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut bench = Command::new(env!("CARGO_BIN_EXE_percolator-bench"));
    bench.args(["fig8", "--cells", "100", "--seconds", "60", "--data"]).arg(&data);
    for beside in ["server", "emulator", "postgres"] {
        bench.args(["--without", beside]);
    }
    let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The benchmark handles the signal before it creates any file.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !data.join("main/FORMAT").exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pressed = Instant::now();
    let id = bench.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ran = bench.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(130), "{said}");
    assert!(pressed.elapsed() < Duration::from_secs(3), "{:?}", pressed.elapsed());
    assert!(said.contains("interrupted"), "{said}");
}
