//! Lists the environment variables that this program reads, besides those of settings and options,
//! and the setting of the web index.
//!
//! Code of this crate reads a variable by its entry here. A test finds variables that other crates
//! read and that this list lacks.

use std::ffi::OsString;

use percolator::cluster::Setting;

/// An environment variable.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    /// The meaning of its value.
    pub(crate) meaning: &'static str,
    /// The processes that read it.
    pub(crate) read_by: &'static str,
}

impl Variable {
    /// Returns the variable's value in this process.
    pub(crate) fn value(&self) -> Option<OsString> {
        std::env::var_os(self.name)
    }
}

pub(crate) const CLICOLOR_FORCE: Variable = Variable {
    name: "CLICOLOR_FORCE",
    meaning: "Any value but `0` colours stderr also where it is no terminal.",
    read_by: "every command",
};

pub(crate) const NO_COLOR: Variable = Variable {
    name: "NO_COLOR",
    meaning: "Any value turns colours off, unless `CLICOLOR_FORCE` turns them on.",
    read_by: "every command",
};

pub(crate) const NOTIFY_SOCKET: Variable = Variable {
    name: "NOTIFY_SOCKET",
    meaning: "The socket of the service manager, which gets `READY=1` and `STOPPING=1`. systemd \
              sets it.",
    read_by: "`serve table`, `serve oracle`, `worker`, `console`, on Linux",
};

pub(crate) const XDG_RUNTIME_DIR: Variable = Variable {
    name: "XDG_RUNTIME_DIR",
    meaning: "The directory of the file with a console's token, if the store is no directory, and \
              of the socket for other commands, if none can be made in the store's directory.",
    read_by: "every process with a console, or with a store in a directory",
};

/// All variables, in order of their names.
pub(crate) const VARIABLES: [Variable; 10] = [
    Variable {
        name: "BIGTABLE_EMULATOR_HOST",
        meaning: "The `HOST:PORT` of the server of a store whose URL names none, in plain text.",
        read_by: "every client",
    },
    CLICOLOR_FORCE,
    Variable {
        name: "GOOGLE_APPLICATION_CREDENTIALS",
        meaning: "The file of credentials for Cloud Bigtable. Without it they are found as \
                  Google's own clients find them.",
        read_by: "every client of Cloud Bigtable",
    },
    Variable {
        name: "HOME",
        meaning: "The directory that holds `.config`, if `XDG_CONFIG_HOME` is not set.",
        read_by: "every client",
    },
    NOTIFY_SOCKET,
    NO_COLOR,
    Variable {
        name: "PERCOLATOR_CONSOLE_ASSETS",
        meaning: "A directory with the console's files, for its development. Only a debug build \
                  reads it.",
        read_by: "every process with a console",
    },
    Variable {
        name: "TMPDIR",
        meaning: "The directory of temporary files, and of the files of `XDG_RUNTIME_DIR` where \
                  that is not set; else `/tmp`.",
        read_by: "every command",
    },
    Variable {
        name: "XDG_CONFIG_HOME",
        meaning: "The directory that holds `percolator/config.toml`.",
        read_by: "every client",
    },
    XDG_RUNTIME_DIR,
];

/// The directory of a cluster's search index.
pub(crate) const SEARCH: Setting = Setting::of_application(
    "app.search",
    "The directory of the search index. One worker at a time feeds it.",
    "workers of the web index without `--search`, and `webindex` commands",
);
