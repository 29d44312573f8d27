//! Tests which clusters are refused when the store is opened, and with which reason.

use bigtable::Error;

use super::fake::Fake;
use crate::{HbaseOptions, HbaseStore};

#[tokio::test]
async fn an_old_cluster_is_refused_with_the_reason() {
    let fake = Fake::start().await;
    fake.is_of_version("2.5.11");
    let error = fake.connect("").await.expect_err("the version is too old").to_string();
    assert!(error.contains("HBase 2.5.11") && error.contains("upgrade to 2.6"), "{error}");
    fake.is_of_version("3.0.0-beta-2");
    fake.connect("").await.expect("a connection");
}

#[tokio::test]
async fn a_refusal_names_the_address() {
    let text = "hbase://192.0.2.1:16000/shop?deadline=1s";
    let address = text.parse().expect("an address");
    let refused = HbaseStore::connect(&address, HbaseOptions::default()).await;
    let Err(Error::InvalidRequest(why)) = refused else { panic!("{refused:?}") };
    assert!(why.starts_with(text) && why.contains("allow plain text"), "{why}");
}
