//! Reads the settings of a cluster from files, the environment and flags.
//!
//! ```text
//!   defaults < /etc/percolator/percolator.toml < $XDG_CONFIG_HOME/percolator/config.toml
//!            < ./percolator.toml < PERCOLATOR_* < flags
//! ```
//!
//! In the environment, `locks.lifetime_ms` is `PERCOLATOR_LOCKS__LIFETIME_MS`, and commas
//! separate the items of a list. An unknown key in a file is an error, so that a misspelt key
//! does not leave a default in force. Keys that begin with `app.` are left to the application.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percolator_core::{Error, InvalidKind, Result};
#[cfg(feature = "etcd")]
use percolator_rpc::etcd::EtcdOptions;
use percolator_rpc::{Address, Tls};
use toml::{Table, Value};

use crate::connect::{Cluster, Locks};
use crate::settings::{BATCH_DELAY_MAX, Form, SETTINGS, Setting};
use crate::store_address::StoreAddress;

/// The largest settings file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The prefix of the application's own settings.
const APP: &str = "app.";

/// Settings, each with its source. Needs the feature `cluster`.
///
/// ```
/// use percolator::cluster::Config;
/// let mut config = Config::default();
/// config.add_text("cluster.toml", r#"oracles = ["10.0.0.1:7070", "10.0.0.2:7070"]"#)?;
/// config.add_environment([("PERCOLATOR_LOCKS__LIFETIME_MS".into(), "3000".into())])?;
/// assert_eq!(config.cluster()?.oracles.len(), 2);
/// let sources: Vec<_> = config.settings().map(|(key, _, source)| (key, source)).collect();
/// assert!(sources.contains(&("locks.lifetime_ms", "PERCOLATOR_LOCKS__LIFETIME_MS")));
/// assert!(config.add_text("other.toml", "orakles = []").is_err());
/// # Ok::<(), percolator::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    settings: BTreeMap<String, (Value, String)>,
}

impl Default for Config {
    fn default() -> Self {
        let preset = |setting: &Setting| Some((setting.key.to_owned(), setting.preset.value()?));
        let presets = SETTINGS.iter().filter_map(preset);
        let settings = presets.map(|(key, value)| (key, (value, "default".to_owned())));
        Config { settings: settings.collect() }
    }
}

impl Config {
    /// Reads the settings of this process: the defaults, the files that exist, and the
    /// environment.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the file or variable, what is wrong with it, and the allowed
    /// values.
    pub fn load() -> Result<Self> {
        Self::load_files(files().into_iter().filter(|file| file.exists()))
    }

    /// Like [`load`](Config::load), but reads this file instead of the usual ones.
    ///
    /// # Errors
    /// As [`load`](Config::load).
    pub fn load_file(file: &Path) -> Result<Self> {
        Self::load_files([file.to_owned()])
    }

    fn load_files(files: impl IntoIterator<Item = PathBuf>) -> Result<Self> {
        let mut config = Config::default();
        for file in files {
            config.add_file(&file)?;
        }
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        };
        config.add_environment(std::env::vars_os().filter_map(text))?;
        Ok(config)
    }

    /// Adds the settings of a file.
    ///
    /// # Errors
    /// As [`load`](Config::load).
    pub fn add_file(&mut self, file: &Path) -> Result<()> {
        let name = file.display().to_string();
        let bad = |why: &dyn std::fmt::Display| {
            Error::invalid(InvalidKind::Options, format!("{name}: {why}"))
        };
        let bytes = std::fs::metadata(file).map_err(|error| bad(&error))?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(bad(&format!(
                "the file has {bytes} bytes, at most {FILE_BYTES_MAX} are allowed"
            )));
        }
        let text = std::fs::read_to_string(file).map_err(|error| bad(&error))?;
        self.add_text(&name, &text)
    }

    /// Adds the settings of a text in TOML. `source` is the name to report.
    ///
    /// # Errors
    /// As [`load`](Config::load).
    pub fn add_text(&mut self, source: &str, text: &str) -> Result<()> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            Error::invalid(
                InvalidKind::Options,
                format!("{source}: {}", error.to_string().trim_end()),
            )
        })?;
        let mut found = Vec::new();
        for (key, value) in table {
            match value {
                Value::Table(inner) => {
                    found.extend(
                        inner.into_iter().map(|(name, value)| (format!("{key}.{name}"), value)),
                    );
                }
                value => found.push((key, value)),
            }
        }
        // Check all settings before the first is added, so that a text is taken as a whole or
        // not at all.
        let checked = found.into_iter().map(|(key, value)| check(source, &key, value));
        for (key, value) in checked.collect::<Result<Vec<_>>>()? {
            self.settings.insert(key, (value, source.to_owned()));
        }
        Ok(())
    }

    /// Adds the settings of environment variables. Ignores variables that name no setting.
    ///
    /// # Errors
    /// As [`load`](Config::load).
    pub fn add_environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<()> {
        for (name, text) in variables {
            let Some(key) = name.strip_prefix("PERCOLATOR_") else { continue };
            let key = key.to_lowercase().replace("__", ".");
            if key.starts_with(APP) || SETTINGS.iter().any(|setting| setting.key == key) {
                self.set(&name, &key, &text)?;
            }
        }
        Ok(())
    }

    /// Sets one setting from text, as flags and variables give it.
    ///
    /// # Errors
    /// As [`load`](Config::load).
    pub fn set(&mut self, source: &str, key: &str, text: &str) -> Result<()> {
        let (key, form) = known(source, key)?;
        let value = match form {
            Form::Text => Value::from(text),
            Form::Number => match text.parse::<i64>() {
                Ok(number) => Value::from(number),
                Err(_) => {
                    return Err(Error::invalid(
                        InvalidKind::Options,
                        format!("{source}: {text:?} is not a number"),
                    ));
                }
            },
            Form::Switch => match text.parse::<bool>() {
                Ok(switch) => Value::from(switch),
                Err(_) => {
                    return Err(Error::invalid(
                        InvalidKind::Options,
                        format!("{source}: {text:?} is not true or false"),
                    ));
                }
            },
            Form::List => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Value::Array(parts.map(Value::from).collect())
            }
        };
        self.settings.insert(key, (value, source.to_owned()));
        Ok(())
    }

    /// Iterates over the settings in order of their keys: key, value in TOML, and source.
    pub fn settings(&self) -> impl Iterator<Item = (&str, &Value, &str)> {
        self.settings.iter().map(|(key, (value, source))| (key.as_str(), value, source.as_str()))
    }

    /// Returns all settings that a file can hold, in order of their keys, except the application's
    /// own.
    ///
    /// ```
    /// use percolator::cluster::Config;
    /// let oracles = Config::known().iter().find(|setting| setting.key == "oracles").unwrap();
    /// assert_eq!(oracles.variable(), "PERCOLATOR_ORACLES");
    /// ```
    pub fn known() -> &'static [Setting] {
        &SETTINGS
    }

    /// Whether the settings name a store. Without a store there is no cluster to connect to.
    pub fn names_a_store(&self) -> bool {
        self.settings.contains_key("store")
    }

    /// Returns the address of the cluster's store.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the setting is missing or wrong.
    pub fn store(&self) -> Result<StoreAddress> {
        let Some(store) = self.text("store") else {
            return Err(Error::invalid(
                InvalidKind::Options,
                "no store: give `store = \"bigtable://HOST:PORT/PROJECT/INSTANCE\"` or \
                 `store = \"hbase://HOST:PORT/NAMESPACE\"` in percolator.toml, or \
                 PERCOLATOR_STORE",
            ));
        };
        StoreAddress::from_env(store).map_err(|error| self.wrong("store", &error.to_string()))
    }

    /// Reads the certificates that this process shows to servers and oracles. `None` if the
    /// settings name none.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one of the three files is missing or wrong.
    pub fn tls(&self) -> Result<Option<Tls>> {
        let file = |key| self.text(key).map(Path::new);
        match (file("tls.authority"), file("tls.certificate"), file("tls.key")) {
            (None, None, None) => Ok(None),
            (Some(authority), Some(certificate), Some(key)) => {
                let tls = Tls::read(authority, certificate, key);
                Ok(Some(
                    tls.map_err(|error| Error::invalid(InvalidKind::Options, error.to_string()))?,
                ))
            }
            _ => {
                let what = "tls: give authority, certificate and key, or none of them";
                Err(Error::invalid(InvalidKind::Options, what))
            }
        }
    }

    /// Whether this process may connect to a store beyond this machine in plain text
    /// (`insecure`).
    pub fn is_insecure(&self) -> bool {
        self.switch("insecure")
    }

    fn switch(&self, key: &str) -> bool {
        self.settings.get(key).and_then(|(value, _)| value.as_bool()).unwrap_or(false)
    }

    /// How long a request to the store waits for others to be sent with it (`batch_delay_ms`).
    ///
    /// # Errors
    /// [`Error::Invalid`] if the delay is negative or longer than one second.
    pub fn batch_delay(&self) -> Result<Duration> {
        let delay = self.settings.get("batch_delay_ms").and_then(|(value, _)| value.as_integer());
        let delay = delay.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        delay.filter(|delay| *delay <= BATCH_DELAY_MAX).ok_or_else(|| {
            let most = BATCH_DELAY_MAX.as_millis();
            self.wrong("batch_delay_ms", &format!("give 0 to {most} milliseconds"))
        })
    }

    /// Returns the application's own setting `app.NAME`.
    pub fn app(&self, name: &str) -> Option<&str> {
        self.text(&format!("{APP}{name}"))
    }

    /// Returns the cluster that the settings describe.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the setting that is missing or wrong, and its source.
    pub fn cluster(&self) -> Result<Cluster> {
        let mut cluster = Cluster::new(self.addresses("oracles")?);
        if cluster.oracles.is_empty() {
            return Err(Error::invalid(
                InvalidKind::Options,
                "no oracles: give `oracles = [\"HOST:PORT\"]` in percolator.toml, or \
                 PERCOLATOR_ORACLES=HOST:PORT",
            ));
        }
        let lifetime = self.settings.get("locks.lifetime_ms").and_then(|(v, _)| v.as_integer());
        let lifetime = lifetime.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        let lifetime = lifetime
            .ok_or_else(|| self.wrong("locks.lifetime_ms", "give a number of milliseconds"))?;
        cluster.locks = match self.text("locks.kind") {
            Some("table") => Locks::table(lifetime),
            Some("etcd") => self.etcd(lifetime)?,
            _ => return Err(self.wrong("locks.kind", "give \"table\" or \"etcd\"")),
        };
        cluster.tls = self.tls()?;
        Ok(cluster)
    }

    #[cfg(feature = "etcd")]
    fn etcd(&self, lifetime: Duration) -> Result<Locks> {
        let prefix = self.text("locks.prefix").unwrap_or_default().to_owned();
        let options = EtcdOptions { prefix, lifetime };
        let members = self.addresses("locks.members")?;
        if self.switch("locks.tls") {
            return Ok(Locks::etcd_with_tls(members, options));
        }
        Ok(Locks::etcd(members, options))
    }

    #[cfg(not(feature = "etcd"))]
    fn etcd(&self, _: Duration) -> Result<Locks> {
        let why = "this program was built without etcd: give \"table\", or build the program with \
                   the feature `etcd` of the crate `percolator`";
        Err(self.wrong("locks.kind", why))
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.settings.get(key).and_then(|(value, _)| value.as_str())
    }

    fn addresses(&self, key: &str) -> Result<Vec<Address>> {
        let list = self.settings.get(key).and_then(|(value, _)| value.as_array());
        let parse = |value: &Value| {
            let address = value.as_str().unwrap_or_default().parse::<Address>();
            address.map_err(|error| self.wrong(key, &error.to_string()))
        };
        list.into_iter().flatten().map(parse).collect()
    }

    fn wrong(&self, key: &str, why: &str) -> Error {
        let source = self.settings.get(key).map_or("nowhere", |(_, source)| source);
        Error::invalid(InvalidKind::Options, format!("{key} (from {source}): {why}"))
    }
}

/// The paths of possible settings files. Later ones override earlier ones.
fn files() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let own = own.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")));
    let mut files = vec![PathBuf::from("/etc/percolator/percolator.toml")];
    files.extend(own.map(|dir| dir.join("percolator/config.toml")));
    files.push(PathBuf::from("percolator.toml"));
    files
}

fn known(source: &str, key: &str) -> Result<(String, Form)> {
    if key.strip_prefix(APP).is_some_and(|name| !name.is_empty() && !name.contains('.')) {
        return Ok((key.to_owned(), Form::Text));
    }
    let found = SETTINGS.iter().find(|setting| setting.key == key);
    found.map(|setting| (key.to_owned(), setting.form)).ok_or_else(|| {
        let keys: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        let key: String = key.chars().take(80).collect();
        Error::invalid(
            InvalidKind::Options,
            format!(
                "{source}: there is no setting {key:?}; the settings are {}, and app.* for the \
                 application's own",
                keys.join(", ")
            ),
        )
    })
}

fn check(source: &str, key: &str, value: Value) -> Result<(String, Value)> {
    let (key, form) = known(source, key)?;
    let right = match form {
        Form::Text => value.is_str(),
        Form::Number => value.is_integer(),
        Form::Switch => value.is_bool(),
        Form::List => value.as_array().is_some_and(|list| list.iter().all(Value::is_str)),
    };
    if right {
        Ok((key, value))
    } else {
        Err(Error::invalid(
            InvalidKind::Options,
            format!("{source}: {key} must be {}", form.name()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::LocksIn;

    fn error<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn later_layers_win_and_sources_are_named() {
        let mut config = Config::default();
        config.add_text("a", "oracles = [\"a:1\"]\n[locks]\nlifetime_ms = 9000").unwrap();
        config.add_text("b", "oracles = [\"b:1\", \"c:1\"]").unwrap();
        config.add_environment([("PERCOLATOR_DATA".into(), "x".into())]).unwrap();
        let cluster = config.cluster().unwrap();
        assert_eq!(cluster.oracles.len(), 2);
        assert!(matches!(cluster.locks.0, LocksIn::Table { lifetime } if lifetime.as_secs() == 9));
        config.set("--oracles", "oracles", " d:1 , e:2,").unwrap();
        let source = |key| config.settings().find(|(k, _, _)| *k == key).unwrap().2.to_owned();
        assert_eq!(
            (source("oracles"), source("locks.lifetime_ms")),
            ("--oracles".into(), "a".into())
        );
        assert_eq!(source("locks.kind"), "default");
        assert_eq!(config.cluster().unwrap().oracles[1].to_string(), "e:2");
    }

    #[test]
    fn the_store_and_what_is_the_applications_own() {
        let mut config = Config::default();
        assert!(!config.names_a_store() && error(config.store()).contains("PERCOLATOR_STORE"));
        config.add_text("a", "store = \"bigtable://h:1/p/i\"\n[app]\nsearch = \"x\"").unwrap();
        assert_eq!(config.store().unwrap().to_string(), "bigtable://h:1/p/i");
        assert_eq!((config.app("search"), config.app("other")), (Some("x"), None));
        let search = ("PERCOLATOR_APP__SEARCH".to_owned(), "y".to_owned());
        config.add_environment([search]).unwrap();
        assert_eq!(config.app("search"), Some("y"));
        config.set("--store", "store", "redis://h:1").unwrap();
        assert!(error(config.store()).contains("store (from --store)"));
    }

    #[test]
    fn a_delay_of_requests_has_bounds() {
        let mut config = Config::default();
        assert_eq!(config.batch_delay().unwrap(), Duration::ZERO);
        config.add_text("a", "batch_delay_ms = 1").unwrap();
        assert_eq!(config.batch_delay().unwrap(), Duration::from_millis(1));
        for text in ["-1", "1001"] {
            config.set("env", "batch_delay_ms", text).unwrap();
            let told = error(config.batch_delay());
            assert!(
                told.contains("batch_delay_ms (from env): give 0 to 1000 milliseconds"),
                "{told}"
            );
        }
    }

    #[test]
    #[cfg(feature = "etcd")]
    fn etcd_needs_members_that_are_addresses() {
        let mut config = Config::default();
        let text = "oracles = [\"a:1\"]\n[locks]\nkind = \"etcd\"\nmembers = [\"b:2\"]";
        config.add_text("a", text).unwrap();
        let LocksIn::Etcd { members, options, tls: false } = config.cluster().unwrap().locks.0
        else {
            panic!()
        };
        assert_eq!((members.len(), options.prefix), (1, EtcdOptions::default().prefix));
        config.set("env", "locks.members", "nowhere").unwrap();
        assert!(error(config.cluster()).contains("locks.members (from env)"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_source() {
        let mut config = Config::default();
        assert!(error(config.cluster()).contains("no oracles"));
        for (text, names) in [
            ("orakles = []", "no setting \"orakles\"; the settings are batch_delay_ms, insecure"),
            ("oracles = 7", "oracles must be a list of texts"),
            ("oracles = [7]", "oracles must be a list of texts"),
            ("[locks]\nlifetime_ms = \"x\"", "locks.lifetime_ms must be a number"),
            ("[locks.more]\na = 1", "no setting \"locks.more\""),
            ("[app]\n\"a.b\" = \"c\"", "no setting \"app.a.b\""),
            ("insecure = 1", "insecure must be true or false"),
            ("[app]\na = 1", "app.a must be a text"),
            ("oracles = [", "f.toml: "),
        ] {
            let error = error(config.add_text("f.toml", text));
            assert!(error.contains(names) && error.contains("f.toml"), "{error}");
        }
        let number = [("PERCOLATOR_LOCKS__LIFETIME_MS".to_owned(), "soon".to_owned())];
        assert!(error(config.add_environment(number)).contains("PERCOLATOR_LOCKS__LIFETIME_MS"));
        config.set("-", "oracles", "a:1").unwrap();
        config.set("-", "locks.lifetime_ms", "-1").unwrap();
        assert!(error(config.cluster()).contains("give a number of milliseconds"));
        config.set("-", "locks.lifetime_ms", "1").unwrap();
        config.set("-", "locks.kind", "zookeeper").unwrap();
        assert!(error(config.cluster()).contains("\"table\" or \"etcd\""));
        config.set("-", "locks.kind", "table").unwrap();
        config.set("-", "tls.key", "k.pem").unwrap();
        assert!(error(config.cluster()).contains("none of them"));
        assert!(error(config.add_file(Path::new("/nonexistent.toml"))).contains("/nonexistent"));
    }
}
