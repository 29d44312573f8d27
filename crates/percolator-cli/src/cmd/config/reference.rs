//! `config reference`: prints the page `docs/settings.md`.
//!
//! The page has no text of its own about a single setting. Such text stands beside the setting, the
//! variable or the option that it describes.

use std::collections::BTreeMap;

use clap::Args;
use percolator::cluster::{Config, Setting};
use serde_json::{Value, json};

use crate::context::Context;
use crate::environment::{SEARCH, VARIABLES};
use crate::exit::Exit;

const BEFORE: &str = "\
# Settings

All settings and environment variables. This page is the output of `percolator config reference`;
a test compares the two. `percolator config view --sources` prints the settings in force.

A *client* is a process that opens the database of a cluster: a worker, a console, a command on a
cluster, and a server with `--config`. Clients read `/etc/percolator/percolator.toml`, then
`percolator/config.toml` in `$XDG_CONFIG_HOME`, then `./percolator.toml`, then the environment, then
their options. A later source overrides an earlier one. `--config FILE` replaces the three files. A
file is TOML of at most 1 MiB, and a setting that is not on this page is an error in it.

## In files

| setting | type | default | unit | meaning | used by |
|---|---|---|---|---|---|
";

const BETWEEN: &str = "
Other settings `app.NAME` are texts that belong to an application of yours.

## In the environment

Commas separate the items of a list.

| variable | meaning | read by |
|---|---|---|
";

/// Print all settings and environment variables, in Markdown.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  percolator config reference > docs/settings.md")]
pub(crate) struct Reference {}

/// The row of an environment variable: its meaning, and the processes that read it.
#[derive(Debug)]
struct Described {
    meaning: String,
    read_by: String,
}

impl Reference {
    pub(crate) fn run(&self, context: &Context) -> anyhow::Result<Exit> {
        let variables = variables(&(context.tree)());
        if context.out.json {
            let settings: Vec<Value> = settings().map(in_json).collect();
            let variables: Vec<Value> = variables.iter().map(variable_in_json).collect();
            context.out.json(&json!({ "settings": settings, "variables": variables }))?;
            return Ok(Exit::Done);
        }
        let mut page = BEFORE.to_owned();
        for setting in settings() {
            let default = setting.default_value().map(|value| code(&value.to_string()));
            let default = default.unwrap_or_default();
            let (form, unit) = (setting.form.name(), setting.unit);
            let key = code(setting.key);
            page.push_str(&row(&[&key, form, &default, unit, setting.meaning, setting.used_by]));
        }
        page.push_str(BETWEEN);
        for (name, Described { meaning, read_by }) in &variables {
            page.push_str(&row(&[&code(name), meaning, read_by]));
        }
        context.out.line(page.trim_end())?;
        Ok(Exit::Done)
    }
}

/// The settings of a cluster, and those of the web index.
fn settings() -> impl Iterator<Item = &'static Setting> {
    Config::known().iter().chain([&SEARCH])
}

fn in_json(setting: &Setting) -> Value {
    json!({
        "key": setting.key,
        "type": setting.form.name(),
        "default": setting.default_value(),
        "unit": setting.unit,
        "meaning": setting.meaning,
        "used_by": setting.used_by,
        "variable": setting.variable(),
    })
}

fn variable_in_json((name, described): (&String, &Described)) -> Value {
    json!({ "name": name, "meaning": described.meaning, "read_by": described.read_by })
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

/// Returns the variables of settings, of options, and all others, by their names.
fn variables(tree: &clap::Command) -> BTreeMap<String, Described> {
    let of_setting = |setting: &Setting| {
        let (meaning, read_by) = (format!("Sets `{}`.", setting.key), setting.used_by.to_owned());
        (setting.variable(), Described { meaning, read_by })
    };
    let mut variables: BTreeMap<String, Described> = settings().map(of_setting).collect();
    of_options(tree, tree, &mut variables);
    for variable in &VARIABLES {
        let (meaning, read_by) = (variable.meaning.to_owned(), variable.read_by.to_owned());
        variables.insert(variable.name.to_owned(), Described { meaning, read_by });
    }
    variables
}

/// Adds the variables that stand for options of a command or of its subcommands.
fn of_options(
    tree: &clap::Command,
    command: &clap::Command,
    variables: &mut BTreeMap<String, Described>,
) {
    for argument in command.get_arguments() {
        if let (Some(name), Some(option)) = (argument.get_env(), argument.get_long()) {
            let described = Described {
                meaning: format!("Stands for the option `--{option}`, if that is not given."),
                read_by: format!("every command with `--{option}`{}", but_not(tree, option)),
            };
            variables.insert(name.to_string_lossy().into_owned(), described);
        }
    }
    command.get_subcommands().for_each(|command| of_options(tree, command, variables));
}

/// Names the commands that have an option for which no variable stands.
fn but_not(tree: &clap::Command, option: &str) -> String {
    fn has(command: &clap::Command, option: &str) -> bool {
        let mut arguments = command.get_arguments();
        arguments.any(|found| found.get_long() == Some(option) && found.get_env().is_none())
            || command.get_subcommands().any(|command| has(command, option))
    }
    let commands = tree.get_subcommands().filter(|command| has(command, option));
    let names: Vec<_> = commands.map(|command| code(command.get_name())).collect();
    if names.is_empty() { String::new() } else { format!(", but not {}", names.join(", ")) }
}
