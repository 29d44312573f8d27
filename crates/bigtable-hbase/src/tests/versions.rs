//! Tests that clusters of old versions of HBase are refused.

use super::fake::Fake;

#[tokio::test]
async fn an_old_cluster_is_refused_with_the_reason() {
    let fake = Fake::start().await;
    fake.is_of_version("2.5.11");
    let error = fake.connect("").await.expect_err("the version is too old").to_string();
    assert!(error.contains("HBase 2.5.11") && error.contains("upgrade to 2.6"), "{error}");
    fake.is_of_version("3.0.0-beta-2");
    fake.connect("").await.expect("a connection");
}
