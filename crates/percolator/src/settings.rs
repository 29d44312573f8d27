//! Lists the settings of a cluster: the one place of their names, types, defaults and meanings.
//!
//! `config.rs` accepts what stands here, and `docs/settings.md` is printed from it.

use std::time::Duration;

use percolator_core::TableLocks;
use toml::Value;

/// The longest delay of requests to the store. The paper's section 2.5 delays requests by
/// seconds, because no user waits for an observer. Here the bound is one second, because a
/// person at a terminal waits for these requests.
pub(crate) const BATCH_DELAY_MAX: Duration = Duration::from_secs(1);

/// The type of a setting's value. Needs the feature `cluster`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// A text.
    Text,
    /// A whole number.
    Number,
    /// A list of texts.
    List,
    /// True or false.
    Switch,
}

impl Form {
    /// The type in words: `a text`, `a number`, `a list of texts`, `true or false`.
    pub fn name(self) -> &'static str {
        match self {
            Form::Text => "a text",
            Form::Number => "a number",
            Form::List => "a list of texts",
            Form::Switch => "true or false",
        }
    }
}

/// The value of a setting that nobody gave.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Preset {
    /// There is none.
    Nothing,
    Text(&'static str),
    Number(i64),
    Switch(bool),
}

impl Preset {
    pub(crate) fn value(self) -> Option<Value> {
        match self {
            Preset::Nothing => None,
            Preset::Text(text) => Some(text.into()),
            Preset::Number(number) => Some(number.into()),
            Preset::Switch(switch) => Some(switch.into()),
        }
    }
}

/// A setting that a file or the environment can hold. Needs the feature `cluster`.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Setting {
    /// The name in a file, such as `locks.kind`.
    pub key: &'static str,
    /// The type of its value.
    pub form: Form,
    pub(crate) preset: Preset,
    /// The unit of its value, or nothing.
    pub unit: &'static str,
    /// The meaning, and the allowed values.
    pub meaning: &'static str,
    /// The processes that use the setting.
    pub used_by: &'static str,
}

impl Setting {
    /// Describes a text of an application. Its key begins with `app.`, and it has no default.
    ///
    /// ```
    /// use percolator::cluster::Setting;
    /// let search = Setting::of_application("app.search", "A directory.", "workers");
    /// assert_eq!(search.variable(), "PERCOLATOR_APP__SEARCH");
    /// ```
    pub const fn of_application(
        key: &'static str,
        meaning: &'static str,
        used_by: &'static str,
    ) -> Self {
        Setting { key, form: Form::Text, preset: Preset::Nothing, unit: "", meaning, used_by }
    }

    /// The environment variable that sets it: `locks.kind` is `PERCOLATOR_LOCKS__KIND`.
    pub fn variable(&self) -> String {
        format!("PERCOLATOR_{}", self.key.replace('.', "__").to_uppercase())
    }

    /// The default in TOML, if there is one.
    pub fn default_value(&self) -> Option<Value> {
        self.preset.value()
    }
}

const CLIENTS: &str = "every client";
const ETCD_CLIENTS: &str = "every client, if `locks.kind` is `etcd`";

/// All settings, in order of their keys.
pub(crate) static SETTINGS: [Setting; 12] = [
    Setting {
        key: "batch_delay_ms",
        form: Form::Number,
        preset: Preset::Number(0),
        unit: "milliseconds",
        meaning: "How long a request to the store waits for others to be sent with it: 0 to 1000. \
                  A worker and `webindex load` have the default 1.",
        used_by: CLIENTS,
    },
    Setting {
        key: "insecure",
        form: Form::Switch,
        preset: Preset::Switch(false),
        unit: "",
        meaning: "Whether a client without certificates may reach a store beyond this machine, in \
                  plain text.",
        used_by: CLIENTS,
    },
    Setting {
        key: "locks.kind",
        form: Form::Text,
        preset: Preset::Text("table"),
        unit: "",
        meaning: "The lock service: `table` keeps it in the store, `etcd` in an etcd cluster. All \
                  processes of a cluster must have the same.",
        used_by: CLIENTS,
    },
    Setting {
        key: "locks.lifetime_ms",
        form: Form::Number,
        preset: Preset::Number(TableLocks::LIFETIME.as_millis() as i64),
        unit: "milliseconds",
        meaning: "How long a liveness token lives without a renewal: 100 to 600000, and at least \
                  2000 in etcd. Other processes then roll the owner's locks forward or back.",
        used_by: CLIENTS,
    },
    Setting {
        key: "locks.members",
        form: Form::List,
        preset: Preset::Nothing,
        unit: "",
        meaning: "The members of the etcd cluster, each `HOST:PORT`.",
        used_by: ETCD_CLIENTS,
    },
    Setting {
        key: "locks.prefix",
        form: Form::Text,
        preset: Preset::Text("percolator/"),
        unit: "",
        meaning: "The prefix of all keys in etcd. Each store needs a prefix of its own.",
        used_by: ETCD_CLIENTS,
    },
    Setting {
        key: "locks.tls",
        form: Form::Switch,
        preset: Preset::Switch(false),
        unit: "",
        meaning: "Whether connections to etcd have mutual TLS, with the files of `tls.*`.",
        used_by: ETCD_CLIENTS,
    },
    Setting {
        key: "oracles",
        form: Form::List,
        preset: Preset::Nothing,
        unit: "",
        meaning: "The oracle processes, each `HOST:PORT`, in the order in which a client tries \
                  them. Required.",
        used_by: CLIENTS,
    },
    Setting {
        key: "store",
        form: Form::Text,
        preset: Preset::Nothing,
        unit: "",
        meaning: "The store: `bigtable://HOST:PORT/PROJECT/INSTANCE`, or \
                  `hbase://HOST:PORT,HOST:PORT/NAMESPACE` with masters or region servers of \
                  HBase. Required. Without `HOST:PORT`, the variable `BIGTABLE_EMULATOR_HOST` \
                  names the server, else it is Cloud Bigtable.",
        used_by: CLIENTS,
    },
    Setting {
        key: "tls.authority",
        form: Form::Text,
        preset: Preset::Nothing,
        unit: "",
        meaning: "The file of the authority that signs all certificates of the cluster, in PEM. \
                  The three files of `tls` are given together or not at all.",
        used_by: CLIENTS,
    },
    Setting {
        key: "tls.certificate",
        form: Form::Text,
        preset: Preset::Nothing,
        unit: "",
        meaning: "The file of the client's certificate, in PEM. It names \
                  `client.percolator.internal`.",
        used_by: CLIENTS,
    },
    Setting {
        key: "tls.key",
        form: Form::Text,
        preset: Preset::Nothing,
        unit: "",
        meaning: "The file of the certificate's private key, in PEM.",
        used_by: CLIENTS,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_in_order_and_a_preset_has_its_form() {
        assert!(SETTINGS.iter().is_sorted_by(|a, b| a.key < b.key));
        for setting in &SETTINGS {
            let right = matches!(
                (setting.form, setting.preset),
                (_, Preset::Nothing)
                    | (Form::Text, Preset::Text(_))
                    | (Form::Number, Preset::Number(_))
                    | (Form::Switch, Preset::Switch(_))
            );
            assert!(right, "{}", setting.key);
            assert_eq!(setting.form == Form::Number, !setting.unit.is_empty(), "{}", setting.key);
        }
        let bound = format!("0 to {}.", BATCH_DELAY_MAX.as_millis());
        assert!(SETTINGS[0].meaning.contains(&bound), "{}", SETTINGS[0].meaning);
    }
}
