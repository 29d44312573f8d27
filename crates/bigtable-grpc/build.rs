//! Makes Rust of Google's protocol definitions, and of this project's own, without `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(
        [
            "google/bigtable/v2/bigtable.proto",
            "google/bigtable/v2/feature_flags.proto",
            "google/bigtable/admin/v2/bigtable_table_admin.proto",
            "google/bigtable/admin/v2/bigtable_instance_admin.proto",
            "percolator/bigtable/v1/extension.proto",
        ],
        ["proto"],
    )?;
    tonic_prost_build::configure()
        .bytes(".google.bigtable.v2")
        .bytes(".percolator.bigtable.v1")
        .emit_rerun_if_changed(false)
        // What a service does not implement answers UNIMPLEMENTED.
        .generate_default_stubs(true)
        .include_file("google.rs")
        .compile_fds(files)?;
    Ok(())
}
