//! Checks the units of systemd.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::{Line, contrib, expand, read, run, skipped};

const UNITS: [&str; 3] =
    ["percolator-table.service", "percolator-oracle.service", "percolator-worker@.service"];

/// The options that each unit must have.
const DEMANDED: [(&str, &str); 16] = [
    ("Unit.StartLimitIntervalSec", "0"),
    ("Service.Type", "notify"),
    ("Service.NotifyAccess", "main"),
    ("Service.User", "percolator"),
    ("Service.Group", "percolator"),
    ("Service.Restart", "always"),
    ("Service.NoNewPrivileges", "yes"),
    ("Service.ProtectSystem", "strict"),
    ("Service.ProtectHome", "yes"),
    ("Service.PrivateTmp", "yes"),
    ("Service.PrivateDevices", "yes"),
    ("Service.MemoryDenyWriteExecute", "yes"),
    ("Service.CapabilityBoundingSet", ""),
    ("Service.RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"),
    ("Service.UMask", "0077"),
    ("Install.WantedBy", "multi-user.target"),
];

/// The options of a unit, by section and name. A name that is there several times has all values.
fn options(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut options: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
            continue;
        }
        let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line}"));
        options.entry(format!("{section}.{name}")).or_default().push(value.to_owned());
    }
    options
}

/// The arguments that systemd makes of `ExecStart=` for the instance 1, with the variables of
/// `Environment=`. It splits `$NAME` at blanks, and takes `${NAME}` as it is.
fn arguments(options: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut variables = BTreeMap::new();
    for assignment in options["Service.Environment"].iter().flat_map(|line| line.split(' ')) {
        let (name, value) = assignment.split_once('=').unwrap();
        variables.insert(name.to_owned(), value.replace("%i", "1"));
    }
    let [line] = &options["Service.ExecStart"][..] else { panic!("one command") };
    let mut words = line.split(' ');
    assert_eq!(words.next(), Some("/usr/bin/percolator"));
    let mut arguments = Vec::new();
    for word in words {
        match word.strip_prefix('$').filter(|rest| !rest.starts_with('{')) {
            Some(name) => arguments.extend(variables[name].split_whitespace().map(str::to_owned)),
            None => arguments.push(expand(word, "${", "}", &variables)),
        }
    }
    arguments
}

#[test]
fn units_start_commands_of_this_program_and_are_confined() {
    let mut commands = Vec::new();
    let mut ports = BTreeSet::new();
    for unit in UNITS {
        let options = options(&read(&contrib("systemd").join(unit)));
        for (name, value) in DEMANDED {
            let found = options.get(name).unwrap_or_else(|| panic!("{unit} has no {name}"));
            assert_eq!(found[..], [value], "{unit}: {name}");
        }
        let line = Line::parse(&arguments(&options));
        assert!(line.metrics().ip().is_loopback(), "{unit}");
        ports.extend([Some(line.metrics()), line.listen()].into_iter().flatten());
        let settings = Path::new("/etc/percolator/percolator.toml");
        assert_eq!(line.file("config").as_deref(), Some(settings), "{unit}");
        if let Some(data) = line.file("data") {
            let [state] = &options["Service.StateDirectory"][..] else { panic!("{unit}") };
            assert_eq!(data, Path::new("/var/lib").join(state), "{unit}");
        }
        commands.push(line.command);
    }
    assert_eq!(commands, ["serve table", "serve oracle", "worker"]);
    assert_eq!(ports.len(), 5, "each process has ports of its own: {ports:?}");
}

/// The comments of each unit show variables for its file of the environment.
#[test]
fn examples_in_the_units_are_options_of_the_command() {
    for unit in UNITS {
        let text = read(&contrib("systemd").join(unit));
        let mut options = options(&text);
        let shown: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
        assert!(shown.iter().any(|line| line.starts_with("MORE=--")), "{unit}: {shown:?}");
        let own = arguments(&options);
        for line in shown {
            let (name, value) = line.split_once('=').unwrap();
            let line = options["Service.ExecStart"][0].clone();
            assert!(line.contains(&format!("${{{name}}}")) || line.contains(&format!("${name}")));
            let replaced = match name {
                "MORE" => line.replace("$MORE", value),
                _ => line.replace(&format!("${{{name}}}"), value),
            };
            options.insert("Service.ExecStart".to_owned(), vec![replaced]);
        }
        let more = arguments(&options);
        assert!(more != own && more.len() > own.len(), "{unit}");
        Line::parse(&more);
    }
}

/// Copies the units, with this program in place of the installed one.
fn installed(dir: &Path) -> Vec<PathBuf> {
    let program = env!("CARGO_BIN_EXE_percolator");
    let copy = |unit: &str| {
        let text = read(&contrib("systemd").join(unit)).replace("/usr/bin/percolator", program);
        let path = dir.join(unit.replace("@.", "@1."));
        std::fs::write(&path, text).unwrap();
        path
    };
    UNITS.map(copy).to_vec()
}

#[test]
fn systemd_takes_the_units() {
    let dir = tempfile::tempdir().unwrap();
    let units = installed(dir.path());
    let verify = |unit: &Path| {
        let unit = unit.to_str().unwrap();
        run("systemd-analyze", &["verify", "--man=no", "--recursive-errors=no", unit])
    };
    for unit in &units {
        let Some(output) = verify(unit) else {
            return skipped("systemd-analyze is not installed (Debian: apt-get install systemd)");
        };
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let path = unit.to_str().unwrap();
        let args = ["security", "--offline=yes", "--threshold=20", "--no-pager", path];
        let output = run("systemd-analyze", &args).unwrap();
        assert!(output.status.success(), "its exposure is above 2.0: {output:?}");
    }
    // A mistake would be found.
    let wrong = read(&units[0]).replace("Restart=always", "Restart=sometimes");
    std::fs::write(&units[0], wrong).unwrap();
    let output = verify(&units[0]).unwrap();
    assert!(!output.status.success() || !output.stderr.is_empty(), "{output:?}");
}

#[test]
fn the_user_of_the_units_is_made() {
    let text = read(&contrib("systemd/percolator.sysusers.conf"));
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["u percolator - \"Percolator\" /var/lib/percolator"]);
}
