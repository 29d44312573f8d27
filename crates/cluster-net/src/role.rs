//! Names the roles that a certificate may give to its holder.

/// The role of a certificate's holder.
///
/// ```
/// assert_eq!(cluster_net::Role::Oracle.name(), "oracle.percolator.internal");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A client of the oracle and of tables.
    Client,
    /// An oracle process.
    Oracle,
    /// A server of tables.
    Table,
    /// An administrator, who may do what a client may, and may ask for backups.
    Admin,
}

impl Role {
    pub(crate) const ALL: [Role; 4] = [Role::Client, Role::Oracle, Role::Table, Role::Admin];

    /// The DNS name of the role in a certificate.
    pub fn name(self) -> &'static str {
        match self {
            Role::Client => "client.percolator.internal",
            Role::Oracle => "oracle.percolator.internal",
            Role::Table => "table.percolator.internal",
            Role::Admin => "admin.percolator.internal",
        }
    }

    /// The holder of the role in a message.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Oracle => "oracle",
            Role::Table => "table server",
            Role::Admin => "administrator",
        }
    }
}
