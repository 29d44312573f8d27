//! The command `percolator`. Its commands are in the library.

/// Many small buffers are allocated on one thread and freed on another; with the system's allocator
/// that alone takes a quarter of the time of `demo`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    percolator_cli::run()
}
