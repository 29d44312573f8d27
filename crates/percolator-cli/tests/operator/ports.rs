//! Tests where the processes of a local cluster listen, and commands that read its settings.

use std::net::TcpListener;

use crate::cluster::Cluster;

/// Returns the first of three ports at which nobody listens.
fn three_ports() -> u16 {
    let free = |first: u16| (first..first + 3).all(|p| TcpListener::bind(("127.0.0.1", p)).is_ok());
    loop {
        let any = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if any < u16::MAX - 3 && free(any) {
            return any;
        }
    }
}

#[test]
fn a_cluster_listens_at_the_ports_that_are_named() {
    let cluster = Cluster::new();
    let first = three_ports();
    cluster.up(&["--workers", "0", "--ports", &first.to_string()]);
    let status = cluster.cluster(&["status", "--json"]).with(0).json();
    let at = |n: usize| status["processes"][n]["address"].as_str().unwrap().to_owned();
    let expected = |n: u16| format!("127.0.0.1:{}", first + n);
    assert_eq!([at(0), at(1), at(2)], [expected(0), expected(1), expected(2)]);
    // These commands read the settings from a file, too.
    assert!(cluster.on(&["oracle", "status", "--json"]).with(0).json()["latest_ts"].is_number());
    let doctor = cluster.on(&["doctor", "--json"]).with(0).json();
    let found = doctor.as_array().unwrap();
    assert!(found.len() > 2 && found.iter().all(|of| of["verdict"] == "sound"), "{doctor}");
    let view = cluster.on(&["config", "view", "--json"]).with(0).json();
    assert_eq!(view["oracles"], serde_json::json!([expected(1), expected(2)]));
    cluster.on(&["set", "Bob", "bal", "1"]).with(0);

    let other = three_ports();
    let words = ["up", "--ports", &other.to_string()];
    cluster.cluster(&words).refused(2, "runs already, in a cluster with other ports", "down");
    cluster.cluster(&["down"]).with(0);
    let taken = TcpListener::bind(expected(0)).unwrap();
    let what = format!("table cannot listen at {}", expected(0));
    cluster.cluster(&["up"]).refused(2, &what, "--ports FIRST");
    cluster.up(&["--ports", &other.to_string()]);
    assert_eq!(cluster.on(&["get", "Bob", "bal"]).with(0).stdout, "1\n");
    drop(taken);
}
