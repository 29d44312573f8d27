//! Starts the command `percolator`, which the library implements.

/// The allocator. Many small buffers are allocated on one thread and freed on another. With the
/// system's allocator this alone takes a quarter of the time of `demo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    percolator_cli::run()
}
