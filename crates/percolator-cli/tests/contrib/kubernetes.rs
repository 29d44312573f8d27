//! Checks the manifests of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use percolator::cluster::{Address, Config};
use serde_json::Value;

use crate::container::{image, user};
use crate::{Line, contrib, expand, read, run, skipped};

const FILES: [&str; 4] = ["settings.yaml", "table.yaml", "oracle.yaml", "worker.yaml"];

/// The path where the settings lie in each process.
const SETTINGS: &str = "/etc/percolator";

fn objects() -> Vec<Value> {
    let parse = |file: &str| -> Vec<Value> {
        let text = read(&contrib("kubernetes").join(file));
        serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    FILES.into_iter().flat_map(parse).collect()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

fn of_kind<'o>(objects: &'o [Value], kind: &str) -> Vec<&'o Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn named<'o>(objects: &[&'o Value], wanted: &str) -> &'o Value {
    objects.iter().copied().find(|object| name(object) == wanted).expect(wanted)
}

/// The stateful sets and deployments.
fn workloads(objects: &[Value]) -> Vec<&Value> {
    [of_kind(objects, "StatefulSet"), of_kind(objects, "Deployment")].concat()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("no list: {value}"))
}

/// The pod of a workload, and its only container.
fn pod(workload: &Value) -> (&Value, &Value) {
    let pod = &workload["spec"]["template"]["spec"];
    let [container] = list(&pod["containers"]) else { panic!("one container") };
    (pod, container)
}

/// The command line of a workload's pod with a number.
fn line(workload: &Value, number: u64) -> Line {
    let variables = BTreeMap::from([("POD_NAME".into(), format!("{}-{number}", name(workload)))]);
    let (_, container) = pod(workload);
    let args = list(&container["args"]).iter();
    let args: Vec<String> =
        args.map(|arg| expand(arg.as_str().unwrap(), "$(", ")", &variables)).collect();
    Line::parse(&args)
}

/// The ports of a container, by their names.
fn ports(container: &Value) -> BTreeMap<&str, u64> {
    let port = |port: &'_ Value| port["containerPort"].as_u64().unwrap();
    let ports = list(&container["ports"]).iter();
    ports.map(|one| (one["name"].as_str().unwrap(), port(one))).collect()
}

fn settings(objects: &[Value]) -> Config {
    let [map] = of_kind(objects, "ConfigMap")[..] else { panic!("one set of settings") };
    let mut config = Config::default();
    config.add_text("settings.yaml", map["data"]["percolator.toml"].as_str().unwrap()).unwrap();
    config
}

fn setting(config: &Config, key: &str) -> String {
    let found = config.settings().find(|(name, _, _)| *name == key);
    let (_, value, _) = found.unwrap_or_else(|| panic!("no setting {key}"));
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[test]
fn workloads_run_commands_of_this_program_and_probes_have_their_ports() {
    let objects = objects();
    let mut commands = Vec::new();
    for workload in workloads(&objects) {
        let name = name(workload);
        let (_, container) = pod(workload);
        assert_eq!(container["image"], image(), "{name}");
        let line = line(workload, 0);
        let mut flags = BTreeMap::from([("metrics", u64::from(line.metrics().port()))]);
        let own = ports(container);
        if let Some(listen) = line.listen() {
            assert!(listen.ip().is_unspecified(), "{name} is reached from elsewhere");
            let main = *own.keys().find(|name| **name != "metrics").unwrap();
            flags.insert(main, listen.port().into());
        }
        assert_eq!(own, flags, "{name}: the ports are those of the flags");
        assert!(line.metrics().ip().is_unspecified(), "{name}: the kubelet asks from elsewhere");
        let probes = [
            ("startupProbe", "/healthz"),
            ("livenessProbe", "/healthz"),
            ("readinessProbe", "/readyz"),
        ];
        for (probe, path) in probes {
            let asked = &container[probe]["httpGet"];
            assert_eq!(asked["path"], path, "{name}: {probe}");
            assert!(own.contains_key(asked["port"].as_str().unwrap()), "{name}: {probe}");
            assert_eq!(asked["port"], "metrics", "{name}: {probe}");
        }
        commands.push(line.command);
    }
    assert_eq!(commands, ["serve table", "serve oracle", "worker"]);
}

/// The addresses that the settings name are those of services, ports and pods.
#[test]
fn clients_reach_the_servers_by_the_settings() {
    let objects = objects();
    let config = settings(&objects);
    let services = of_kind(&objects, "Service");
    let workloads = workloads(&objects);
    for name in ["percolator-table", "percolator-oracle"] {
        let (service, workload) = (named(&services, name), named(&workloads, name));
        let labels = &workload["spec"]["template"]["metadata"]["labels"];
        assert_eq!(service["spec"]["selector"], *labels, "{name}");
        assert_eq!(workload["spec"]["selector"]["matchLabels"], *labels, "{name}");
        assert_eq!(workload["spec"]["serviceName"], name);
        assert_eq!(service["spec"]["publishNotReadyAddresses"], true, "{name}");
        let [port] = list(&service["spec"]["ports"]) else { panic!("{name}: one port") };
        let own = ports(pod(workload).1);
        assert_eq!(port["port"].as_u64(), own.get(port["targetPort"].as_str().unwrap()).copied());
    }
    let table = &named(&services, "percolator-table")["spec"]["ports"][0]["port"];
    let store = format!("bigtable://percolator-table:{table}/percolator/cluster");
    assert_eq!(config.store().unwrap().to_string(), store);

    let oracle = named(&workloads, "percolator-oracle");
    assert_eq!(named(&services, "percolator-oracle")["spec"]["clusterIP"], "None");
    let replicas = oracle["spec"]["replicas"].as_u64().unwrap();
    let advertised: Vec<Address> =
        (0..replicas).map(|number| line(oracle, number).advertise().unwrap()).collect();
    let (_, oracles, _) = config.settings().find(|(key, _, _)| *key == "oracles").unwrap();
    let oracles: Vec<Address> = oracles
        .as_array()
        .unwrap()
        .iter()
        .map(|oracle| oracle.as_str().unwrap().parse().unwrap())
        .collect();
    assert_eq!(advertised, oracles);
    let listen = line(oracle, 0).listen().unwrap();
    assert!(replicas > 1 && oracles.iter().all(|oracle| oracle.port() == listen.port()));
}

/// Every file that a process is given lies in a volume, and its secret belongs to its role.
#[test]
fn each_process_has_its_files_and_no_more_rights_than_it_needs() {
    let objects = objects();
    let config = settings(&objects);
    for workload in workloads(&objects) {
        let name = name(workload);
        let (pod, container) = pod(workload);
        let (user, group) = user();
        let context = &pod["securityContext"];
        assert_eq!(context["runAsNonRoot"], true, "{name}");
        assert_eq!((&context["runAsUser"], &context["runAsGroup"]), (&user.into(), &group.into()));
        assert_eq!(context["fsGroup"], group, "{name}");
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        let context = &container["securityContext"];
        assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");

        let mounts: BTreeMap<&str, &str> = list(&container["volumeMounts"])
            .iter()
            .map(|mount| (mount["mountPath"].as_str().unwrap(), mount["name"].as_str().unwrap()))
            .collect();
        // A mount inside of a read-only volume could not be made.
        for (path, other) in mounts.keys().flat_map(|a| mounts.keys().map(move |b| (a, b))) {
            assert!(!other.starts_with(&format!("{path}/")), "{name}: {other} lies in {path}");
        }
        let mounted: BTreeSet<&str> = mounts.values().copied().collect();
        let claims = workload["spec"]["volumeClaimTemplates"].as_array();
        let claims = claims.into_iter().flatten().map(self::name);
        let volumes = list(&pod["volumes"]).iter().map(|volume| volume["name"].as_str().unwrap());
        let there: BTreeSet<&str> = volumes.chain(claims).collect();
        assert_eq!(mounted, there, "{name}");

        let line = line(workload, 0);
        let volume = |file: &str| {
            let mount = mounts.iter().find(|(path, _)| file.starts_with(&format!("{path}/")));
            *mount.unwrap_or_else(|| panic!("{name}: {file} lies in no volume")).1
        };
        let given = |option: &str| Some(line.file(option)?.to_str().unwrap().to_owned());
        let file = given("config").unwrap();
        assert_eq!((&*file, volume(&file)), (&*format!("{SETTINGS}/percolator.toml"), "settings"));
        let role = line.command.strip_prefix("serve ");
        for part in ["authority", "certificate", "key"] {
            let client = setting(&config, &format!("tls.{part}"));
            assert_eq!(volume(&client), "client-tls", "{name}");
            if let Some(role) = role {
                let own = given(&format!("tls_{part}")).unwrap();
                assert_eq!(volume(&own), format!("{role}-tls"), "{name}");
            }
        }
        assert_eq!(
            given("data").map(|data| volume(&data)),
            (role == Some("table")).then_some("data")
        );
        for volume in list(&pod["volumes"]) {
            if let Some(secret) = volume["secret"]["secretName"].as_str() {
                assert_eq!(secret, format!("percolator-{}", volume["name"].as_str().unwrap()));
                assert_eq!(volume["secret"]["defaultMode"], 0o440, "{name}");
            }
        }
    }
    assert!(of_kind(&objects, "Secret").is_empty(), "no secret is in the repository");
}

#[test]
fn the_manifests_match_the_schemas_of_kubernetes() {
    let dir = contrib("kubernetes");
    let files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let names = files.iter().map(|file| file.to_str().unwrap());
    let args: Vec<&str> = ["--strict"].into_iter().chain(names).collect();
    match run("kubernetes-validate", &args) {
        Some(output) => assert!(output.status.success(), "{output:?}"),
        None => skipped("kubernetes-validate is not installed (pip: kubernetes-validate)"),
    }
}
