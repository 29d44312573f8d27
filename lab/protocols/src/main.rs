//! Generates the Rust code of the project's gRPC protocols, without `protoc`.
//!
//! The generated code is checked in, so that building the project needs no generator. Run
//! `cargo run -p protocols` after a change of a definition or of the generator's version. A test
//! compares the checked-in code with what this program generates.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use prost_types::DescriptorProto;
use prost_types::field_descriptor_proto::Type;
use protox::Compiler;
use tonic_prost_build::Builder;

/// Generated files: name and text.
type Files = BTreeMap<String, String>;

/// Definitions that are compiled together, and the folder of their generated code.
struct Protocol {
    /// The crate, in the folder `crates`. The definitions lie in its folder `proto`.
    package: &'static str,
    /// The folder of the generated code, in the crate.
    folder: &'static str,
    /// The file to include: it declares the modules and includes the other files.
    root: &'static str,
    definitions: &'static [&'static str],
    configure: fn(Builder) -> Builder,
}

const PROTOCOLS: [Protocol; 3] = [
    Protocol {
        package: "bigtable-grpc",
        folder: "src/generated",
        root: "google.rs",
        definitions: &[
            "google/bigtable/v2/bigtable.proto",
            "google/bigtable/v2/feature_flags.proto",
            "google/bigtable/admin/v2/bigtable_table_admin.proto",
            "google/bigtable/admin/v2/bigtable_instance_admin.proto",
            "percolator/bigtable/v1/extension.proto",
            "percolator/bigtable/v1/administration.proto",
        ],
        configure: |builder| {
            let builder = builder.bytes(".google.bigtable.v2").bytes(".percolator.bigtable.v1");
            // A method that the server does not implement returns UNIMPLEMENTED.
            builder.generate_default_stubs(true)
        },
    },
    Protocol {
        package: "percolator-rpc",
        folder: "src/generated/oracle",
        root: "oracle.rs",
        definitions: &["percolator/oracle.proto"],
        configure: |builder| builder,
    },
    Protocol {
        package: "percolator-rpc",
        folder: "src/generated/etcd",
        root: "etcd.rs",
        definitions: &["etcd/rpc.proto"],
        // The servers of this protocol are etcd's own.
        configure: |builder| builder.build_server(false),
    },
];

impl Protocol {
    fn package(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates").join(self.package)
    }

    fn folder(&self) -> PathBuf {
        self.package().join(self.folder)
    }

    fn generate(&self) -> anyhow::Result<Files> {
        let definitions = self.package().join("proto");
        // Comments are left out: the definitions have them.
        let mut compiled = Compiler::new([&definitions])?
            .include_imports(true)
            .include_source_info(false)
            .open_files(self.definitions)
            .with_context(|| format!("cannot compile definitions in {}", definitions.display()))?
            .file_descriptor_set();
        compiled.file.iter_mut().flat_map(|file| &mut file.message_type).for_each(list_entries);
        let out = tempfile::tempdir()?;
        let builder = tonic_prost_build::configure().emit_rerun_if_changed(false);
        (self.configure)(builder)
            .include_file(self.root)
            .out_dir(out.path())
            .compile_fds(compiled)?;
        read(out.path())
    }
}

/// Turns each map whose values are messages into a list of its entries, which has the same
/// encoding.
///
/// `prost` encodes a map in no defined order, and leaves out a value that equals the default.
/// Google's client for Node reads a missing value as null, and fails. An entry of a list holds
/// an `Option` of its value, which is encoded even if it is empty, as other servers do.
fn list_entries(message: &mut DescriptorProto) {
    for nested in &mut message.nested_type {
        let is_message = nested
            .field
            .iter()
            .any(|field| field.name() == "value" && field.r#type() == Type::Message);
        match &mut nested.options {
            Some(options) if options.map_entry() && is_message => options.map_entry = None,
            _ => list_entries(nested),
        }
    }
}

/// Reads all files of a folder; a folder that does not exist has none.
fn read(folder: &Path) -> anyhow::Result<Files> {
    let mut files = Files::new();
    if !folder.exists() {
        return Ok(files);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        files.insert(name.unwrap_or_default(), text);
    }
    Ok(files)
}

fn main() -> anyhow::Result<()> {
    for protocol in PROTOCOLS {
        let files = protocol.generate()?;
        let folder = protocol.folder();
        fs::create_dir_all(&folder)?;
        for old in read(&folder)?.keys() {
            fs::remove_file(folder.join(old))?;
        }
        for (name, text) in files {
            fs::write(folder.join(name), text)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

    use super::*;

    #[test]
    fn the_generated_code_is_what_the_generator_makes() {
        for protocol in PROTOCOLS {
            let (made, kept) = (protocol.generate().unwrap(), read(&protocol.folder()).unwrap());
            assert!(made.len() > 1, "{}: nothing was generated", protocol.folder);
            for name in made.keys().chain(kept.keys()) {
                let same = made.get(name) == kept.get(name);
                let file = protocol.folder().join(name);
                let file = file.display();
                assert!(same, "{file} is out of date; run `cargo run -p protocols` and commit");
            }
        }
    }
}
