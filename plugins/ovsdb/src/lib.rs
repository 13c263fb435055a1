//! A client of Open vSwitch databases (OVSDB, RFC 7047 and ovsdb-server(7)).
//!
//! ```text
//!  Client ──commands──▶ task ──bytes, time──▶ Session ─▶ Replica      callers ◀── watch of the replica
//!                        │ ▲                     │
//!                        ▼ │                     └ wire, schema, server, updates: pure
//!                     connections: unix, tcp, ssl
//! ```
//!
//! A [`client::Client`] keeps a copy of the tables that it was asked to follow, the [`replica::Replica`], and executes
//! transactions. What a caller wants of the database is decided on the replica and written with `wait` operations that
//! fail the transaction if the database is not as the replica was:
//!
//! ```no_run
//! use trieste_ovsdb::client::Client;
//! use trieste_ovsdb::operation::{Condition, Operation};
//! use trieste_ovsdb::options::ClientOptions;
//! use trieste_ovsdb::remote::{InvalidRemote, Remotes};
//! use trieste_ovsdb::schema::Version;
//! use trieste_ovsdb::spec::{DatabaseSpec, TableSpec};
//! use trieste_ovsdb::value::Row;
//!
//! # async fn example() -> Result<(), InvalidRemote> {
//! let remotes: Remotes = "unix:/var/run/ovn/ovnnb_db.sock".parse()?;
//! let database = DatabaseSpec {
//!     name: "OVN_Northbound".to_owned(),
//!     min_version: Some(Version(6, 1, 0)),
//!     tables: vec![TableSpec::new("Logical_Router", &["name", "static_routes"])],
//! };
//! let (client, mut replica) = Client::spawn(&remotes, database, ClientOptions::default());
//! while replica.changed().await.is_ok() {
//!     let replica = replica.borrow_and_update().clone();
//!     let routers = replica.table("Logical_Router").filter(|_| replica.is_synced());
//!     let Some((uuid, router)) = routers.and_then(|table| table.find("name", &"cluster".into())) else { continue };
//!     let before = Row::from([("static_routes".to_owned(), router["static_routes"].clone())]);
//!     let this = vec![Condition::equal("_uuid", uuid)];
//!     let row = Row::from([("name".to_owned(), "ovn_cluster_router".into())]);
//!     let operations = vec![
//!         Operation::expect("Logical_Router", this.clone(), &["static_routes"], vec![before]),
//!         Operation::Update { table: "Logical_Router".to_owned(), conditions: this, row },
//!     ];
//!     if let Err(error) = client.transact_on(replica.generation(), operations).await {
//!         eprintln!("not written: {error}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What a server sends is bounded everywhere: messages (`wire`), rows and memory of the replica (`updates`), transactions
//! and what waits to be sent (`session`). A replica is exact or not given out: whatever does not fit ends the session, and
//! the next one begins anew, with the next server.
//!
//! Imports lead one way: `uuid`, `value`, `operation`, `outcome`, `schema`, `spec`, `replica`, `updates`, `wire`, `server`,
//! `session`, all of them pure; then `remote`, `tls`, `options`, `connect`, `task`, `client`.

#![forbid(unsafe_code)]

pub mod client;
mod connect;
pub mod operation;
pub mod options;
pub mod outcome;
pub mod remote;
pub mod replica;
pub mod schema;
pub mod server;
pub mod session;
pub mod spec;
mod task;
pub mod tls;
pub mod updates;
pub mod uuid;
pub mod value;
pub mod wire;
