//! Makes Rust of the protocol definitions, without `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["percolator/oracle.proto", "etcd/rpc.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        // Only what etcd's interface calls; its servers are etcd's own.
        .server_mod_attribute("etcdserverpb", "#[cfg(any())]")
        .include_file("protocols.rs")
        .compile_fds(files)?;
    Ok(())
}
