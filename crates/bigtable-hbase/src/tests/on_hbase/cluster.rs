//! Connects to the real HBase that `PERCOLATOR_HBASE` names. `scripts/hbase.sh` starts one.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{HbaseAddress, HbaseOptions, HbaseStore, Tls};

/// A store in a new namespace. Without HBase, this prints a warning and returns `None`.
pub(crate) async fn store() -> Option<HbaseStore> {
    let address = address()?;
    let connecting = HbaseStore::connect(&address, options());
    Some(connecting.await.expect("a connection to HBase"))
}

/// The options, with the certificates that the environment names.
pub(crate) fn options() -> HbaseOptions {
    let file = |name: &str| std::env::var_os(format!("PERCOLATOR_TLS__{name}"));
    let (authority, certificate, key) = (file("AUTHORITY"), file("CERTIFICATE"), file("KEY"));
    let tls = authority.zip(certificate).zip(key).map(|((authority, certificate), key)| {
        let tls = Tls::read(authority.as_ref(), certificate.as_ref(), key.as_ref());
        tls.expect("the files of certificates")
    });
    HbaseOptions { tls, ..HbaseOptions::default() }
}

/// The address of a namespace that no other test or run uses.
pub(crate) fn address() -> Option<HbaseAddress> {
    static NAMESPACES: AtomicU32 = AtomicU32::new(0);
    let Ok(address) = std::env::var("PERCOLATOR_HBASE") else {
        // The test harness captures the macros' output, so this writes to standard error
        // directly.
        let text =
            b"not run: a test that needs HBase (scripts/hbase.sh cargo test -p bigtable-hbase)\n";
        let _ = std::io::stderr().write_all(text);
        return None;
    };
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let number = NAMESPACES.fetch_add(1, Ordering::Relaxed);
    let namespace = format!("n{}_{number}", since.expect("a clock after 1970").as_millis());
    let address: HbaseAddress = address.parse().expect("the address of an HBase cluster");
    Some(HbaseAddress { namespace, ..address })
}
