//! A real OVN without a data plane: two databases and ovn-northd on sockets of a folder, and the part of OVN-Kubernetes'
//! topology that matters, as a fake.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use trieste_ovn::{CHASSIS_COLUMNS, CHASSIS_TABLE, Chassis, Rows, Table, Transaction};
use trieste_ovsdb::operation::Operation;
use trieste_ovsdb::outcome::{OperationResult, TransactError, read_results};
use trieste_ovsdb::value::Row;

const NORTHBOUND: &str = "OVN_Northbound";
const SOUTHBOUND: &str = "OVN_Southbound";
/// How long a daemon may take until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Two databases and northd. Its processes end with the thread that made it.
pub(crate) struct Ovn {
    folder: TempDir,
    northbound: Option<Child>,
    others: Vec<Child>,
}

/// Which addresses the fake topology has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    V4,
    Dual,
}

impl Ovn {
    /// Starts OVN with empty databases.
    pub(crate) fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("trieste-ovn-").tempdir().unwrap();
        let mut ovn = Self { folder, northbound: None, others: Vec::new() };
        for database in ["nb", "sb"] {
            let schema = format!("/usr/share/ovn/ovn-{database}.ovsschema");
            ovn.run("ovsdb-tool", &["create", &ovn.path(&format!("{database}.db")), &schema]);
        }
        ovn.start_northbound();
        let southbound = ovn.serve("sb");
        let northd = [
            "--unixctl".to_owned(),
            ovn.path("northd.ctl"),
            format!("--ovnnb-db={}", ovn.address("nb")),
            format!("--ovnsb-db={}", ovn.address("sb")),
        ];
        let northd = ovn.spawn("ovn-northd", &northd);
        ovn.others = vec![southbound, northd];
        ovn.answers("sb");
        ovn.run("ovn-sbctl", &[&format!("--db={}", ovn.address("sb")), "init"]);
        ovn.nbctl(&["init"]);
        ovn.sync();
        ovn
    }

    /// Ends the server of the northbound database, and starts one whose empty database has a changed schema.
    pub(crate) fn restart_with_schema(&mut self, change: impl FnOnce(&mut Value)) {
        self.kill_northbound();
        let text = std::fs::read_to_string("/usr/share/ovn/ovn-nb.ovsschema").unwrap();
        let mut schema: Value = serde_json::from_str(&text).unwrap();
        change(&mut schema);
        std::fs::write(self.path("nb.ovsschema"), schema.to_string()).unwrap();
        std::fs::remove_file(self.path("nb.db")).unwrap();
        self.run("ovsdb-tool", &["create", &self.path("nb.db"), &self.path("nb.ovsschema")]);
        self.start_northbound();
    }

    /// Starts the server of the northbound database, and waits for its first answer.
    pub(crate) fn start_northbound(&mut self) {
        self.northbound = Some(self.serve("nb"));
        self.answers("nb");
    }

    /// Serves the northbound database over TCP as well, as where all nodes share it; returns where.
    pub(crate) fn share_northbound(&self) -> String {
        // A port that is free now may be taken a moment later.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let serve = |port: &u16| {
            let (target, remote) = (self.path("nb.ctl"), format!("ptcp:{port}:127.0.0.1"));
            let mut command = self.tool("ovs-appctl");
            command.args(["-t", &target, "ovsdb-server/add-remote", &remote]);
            command.output().unwrap().status.success()
        };
        let port = std::iter::repeat_with(free).take(5).find(serve).expect("no port can be served");
        format!("tcp:127.0.0.1:{port}")
    }

    /// Ends the server of the northbound database, at once.
    pub(crate) fn kill_northbound(&mut self) {
        end(&mut self.northbound.take().unwrap());
    }

    /// Runs ovn-nbctl and returns what it prints.
    pub(crate) fn nbctl(&self, arguments: &[&str]) -> String {
        let database = format!("--db={}", self.address("nb"));
        self.run("ovn-nbctl", &[&[database.as_str(), "--timeout=30"], arguments].concat())
    }

    /// Runs one command of ovn-nbctl, which may fail.
    pub(crate) fn try_nbctl(&self, line: &str) -> bool {
        let database = format!("--db={}", self.address("nb"));
        let output = self.tool("ovn-nbctl").args([&database, "--timeout=30"]).args(line.split(' ')).output();
        output.unwrap().status.success()
    }

    /// Returns how many bytes the server of the northbound database wrote: its log grows with every transaction.
    pub(crate) fn written(&self) -> u64 {
        std::fs::metadata(self.path("nb.db")).unwrap().len()
    }

    /// Runs several commands of ovn-nbctl, each as one line.
    pub(crate) fn nbctl_all(&self, lines: &[String]) {
        let words = lines.iter().flat_map(|line| std::iter::once("--").chain(line.split(' ')));
        self.nbctl(&words.collect::<Vec<_>>());
    }

    /// Waits until northd has done its part.
    pub(crate) fn sync(&self) {
        self.nbctl(&["--wait=sb", "sync"]);
    }

    /// Returns the path of a packet of a connection that is there (`est`) or not (`new`), as ovn-trace tells it at length.
    pub(crate) fn trace(&self, state: &str, switch: &str, packet: &str) -> String {
        let (database, state) = (format!("--db={}", self.address("sb")), format!("--ct={state}"));
        self.run("ovn-trace", &[&database, "--detailed", &state, switch, packet])
    }

    /// Reads the northbound rows that matter.
    pub(crate) fn rows(&self) -> Rows {
        let mut rows = Rows::new();
        for table in Table::ALL {
            let columns = [table.columns(), table.optional_columns()].concat();
            for mut row in self.select("nb", NORTHBOUND, table.name(), &columns) {
                let uuid = row.remove("_uuid").and_then(|uuid| uuid.as_uuid()).unwrap();
                rows.set(table, uuid, row);
            }
        }
        rows
    }

    /// Reads the chassis.
    pub(crate) fn chassis(&self) -> Chassis {
        let mut chassis = Chassis::new();
        for row in self.select("sb", SOUTHBOUND, CHASSIS_TABLE, CHASSIS_COLUMNS) {
            chassis.set(row["_uuid"].as_uuid().unwrap(), &row);
        }
        chassis
    }

    fn select(&self, socket: &str, database: &str, table: &str, columns: &[&str]) -> Vec<Row> {
        let mut columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
        columns.push("_uuid".to_owned());
        let operation = Operation::Select { table: table.to_owned(), conditions: Vec::new(), columns };
        let result = self.operate(socket, database, &[operation]).unwrap().remove(0);
        let OperationResult::Rows(rows) = result else { panic!("rows were expected: {result:?}") };
        rows
    }

    /// Sends a transaction.
    pub(crate) fn transact(&self, transaction: &Transaction) -> Result<(), TransactError> {
        self.operate("nb", NORTHBOUND, &transaction.operations).map(drop)
    }

    /// Sends operations in a session of their own.
    fn operate(
        &self,
        socket: &str,
        database: &str,
        operations: &[Operation],
    ) -> Result<Vec<OperationResult>, TransactError> {
        let mut parameters = vec![Value::from(database)];
        parameters.extend(operations.iter().map(Operation::to_json));
        let request = json!({ "id": 1, "method": "transact", "params": parameters });
        let Ok(mut session) = UnixStream::connect(self.path(&format!("{socket}.sock"))) else {
            return Err(TransactError::NotConnected);
        };
        session.set_read_timeout(Some(START_TIMEOUT)).map_err(|_| TransactError::Lost)?;
        session.write_all(request.to_string().as_bytes()).map_err(|_| TransactError::Lost)?;
        let answers = serde_json::Deserializer::from_reader(BufReader::new(session)).into_iter::<Value>();
        let answer =
            answers.map_while(Result::ok).find(|answer| answer["id"] == 1).ok_or(TransactError::Lost)?;
        assert!(answer["error"].is_null(), "{answer}");
        read_results(operations, &answer["result"])
    }

    /// Returns the rows of the database without UUIDs, sorted: as the golden file was written.
    pub(crate) fn dump(&self) -> String {
        let mut dump = String::new();
        for (table, columns) in [
            ("Logical_Router", "name,options"),
            ("Logical_Router_Port", "name,mac,networks,gateway_chassis"),
            ("Logical_Switch", "name,other_config"),
            ("Logical_Switch_Port", "name,type,options,addresses"),
            ("Logical_Router_Static_Route", "ip_prefix,nexthop,policy,output_port"),
            ("Logical_Router_Policy", "priority,match,action,nexthops"),
        ] {
            let columns = format!("--columns={columns}");
            let list = self.nbctl(&["-f", "csv", "--no-headings", &columns, "list", table]);
            let mut lines: Vec<String> = list.lines().map(without_uuids).collect();
            lines.sort_unstable();
            dump += &format!("# {table}\n");
            lines.iter().for_each(|line| dump += &format!("{line}\n"));
        }
        dump
    }

    /// Returns every row of the tables that matter with every column but UUIDs: what must not change.
    pub(crate) fn everything(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for table in Table::ALL {
            let list = self.nbctl(&["-f", "csv", "--no-headings", "list", table.name()]);
            lines.extend(list.lines().map(|line| format!("{} {}", table.name(), without_uuids(line))));
        }
        lines.sort_unstable();
        lines
    }

    /// Adds what OVN-Kubernetes makes for a cluster of these nodes, and a pod on the first.
    pub(crate) fn add_kubernetes(&self, nodes: &[&str], addresses: Addresses) {
        let dual = |text: &str| if addresses == Addresses::Dual { format!(" {text}") } else { String::new() };
        self.nbctl_all(&[
            "lr-add ovn_cluster_router".to_owned(),
            "ls-add join".to_owned(),
            format!(
                "lrp-add ovn_cluster_router rtoj-ovn_cluster_router 0a:58:64:40:00:01 100.64.0.1/16{}",
                dual("fd98::1/64")
            ),
        ]);
        self.join("join", "jtor-ovn_cluster_router", "rtoj-ovn_cluster_router");
        for (at, node) in nodes.iter().enumerate() {
            self.add_node(at, node, addresses);
        }
        let pod = format!("0a:58:0a:80:00:05 10.128.0.5{}", dual("fd00:10:128::5"));
        self.nbctl(&["lsp-add", nodes[0], "default_pod1", "--", "lsp-set-addresses", "default_pod1", &pod]);
        self.sync();
    }

    fn add_node(&self, at: usize, node: &str, addresses: Addresses) {
        let dual =
            |text: String| if addresses == Addresses::Dual { format!(" {text}") } else { String::new() };
        let (third, join, outside) = (2 * at, at + 2, 33 + 10 * at);
        self.nbctl_all(&[
            format!("ls-add {node}"),
            format!("set Logical_Switch {node} other_config:subnet=10.128.{third}.0/23"),
            format!(
                "lrp-add ovn_cluster_router rtos-{node} 0a:58:0a:80:{third:02x}:01 10.128.{third}.1/23{}",
                dual(if at == 0 {
                    "fd00:10:128::1/64".to_owned()
                } else {
                    format!("fd00:10:128:{at}::1/64")
                })
            ),
        ]);
        self.join(node, &format!("stor-{node}"), &format!("rtos-{node}"));
        let chassis = format!("--db={}", self.address("sb"));
        let name = format!("{node}-chassis");
        let ip = format!("192.168.77.{}", 11 + at);
        let host = format!("hostname={node}");
        let add = ["chassis-add", &name, "geneve", &ip, "--", "set", "Chassis", &name, &host];
        self.run("ovn-sbctl", &[&[chassis.as_str()], &add[..]].concat());
        self.nbctl_all(&[
            format!("lr-add GR_{node}"),
            format!("set Logical_Router GR_{node} options:chassis={name}"),
            format!(
                "lrp-add GR_{node} rtoj-GR_{node} 0a:58:64:40:00:{join:02x} 100.64.0.{join}/16{}",
                dual(format!("fd98::{join}/64"))
            ),
            format!("ls-add ext_{node}"),
            format!("lsp-add ext_{node} br-local_{node}"),
            format!("lsp-set-type br-local_{node} localnet"),
            format!("lsp-set-addresses br-local_{node} unknown"),
            format!("lsp-set-options br-local_{node} network_name=physnet"),
            format!(
                "lrp-add GR_{node} rtoe-GR_{node} 0a:58:a9:fe:{outside:02x}:02 169.254.{outside}.2/24{}",
                dual(format!("fd{outside}::2/64"))
            ),
            format!("lr-route-add GR_{node} 10.128.0.0/14 100.64.0.1"),
            format!("lr-route-add GR_{node} 0.0.0.0/0 169.254.{outside}.1 rtoe-GR_{node}"),
            // OVN-Kubernetes has one per node, so that packets of its pods to anywhere match a route.
            format!("--policy=src-ip lr-route-add ovn_cluster_router 10.128.{third}.0/23 100.64.0.{join}"),
        ]);
        self.join("join", &format!("jtor-GR_{node}"), &format!("rtoj-GR_{node}"));
        self.join(&format!("ext_{node}"), &format!("etor-GR_{node}"), &format!("rtoe-GR_{node}"));
        if addresses == Addresses::Dual {
            self.nbctl_all(&[
                format!("lr-route-add GR_{node} ::/0 fd{outside}::1 rtoe-GR_{node}"),
                format!("--policy=src-ip lr-route-add ovn_cluster_router fd00:10:128:{at}::/64 fd98::{join}"),
            ]);
        }
    }

    /// Adds a node's management port, ovn-k8s-mp0 in the host.
    pub(crate) fn add_management_port(&self, node: &str, addresses: &str) {
        let port = format!("k8s-{node}");
        self.nbctl(&["lsp-add", node, &port, "--", "lsp-set-addresses", &port, addresses]);
    }

    /// Adds a port of a switch that is joined to a router's.
    pub(crate) fn join(&self, switch: &str, port: &str, router_port: &str) {
        self.nbctl_all(&[
            format!("lsp-add {switch} {port}"),
            format!("lsp-set-type {port} router"),
            format!("lsp-set-addresses {port} router"),
            format!("lsp-set-options {port} router-port={router_port}"),
        ]);
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns where a database is, `nb` or `sb`.
    pub(crate) fn address(&self, database: &str) -> String {
        format!("unix:{}", self.path(&format!("{database}.sock")))
    }

    fn serve(&self, database: &str) -> Child {
        let remote = format!("--remote=punix:{}", self.path(&format!("{database}.sock")));
        let arguments = [
            "--unixctl".to_owned(),
            self.path(&format!("{database}.ctl")),
            remote,
            self.path(&format!("{database}.db")),
        ];
        self.spawn("ovsdb-server", &arguments)
    }

    fn answers(&self, database: &str) {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let output =
                self.tool("ovsdb-client").args(["list-dbs", &self.address(database)]).output().unwrap();
            if output.status.success() {
                return;
            }
            assert!(Instant::now() < deadline, "the server of {database} does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a daemon that ends with this thread, however that ends.
    fn spawn(&self, program: &str, arguments: &[String]) -> Child {
        let log = File::create(self.path(&format!("{program}.{}.log", self.others.len()))).unwrap();
        self.command("setpriv")
            .args(["--pdeathsig", "KILL", program, "--no-chdir"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// A tool, which has a minute: some of them connect again and again to a server that is gone.
    fn tool(&self, program: &str) -> Command {
        let mut command = self.command("timeout");
        command.args(["60", program]);
        command
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVN_RUNDIR", "OVS_LOGDIR", "OVN_LOGDIR"] {
            command.env(variable, self.folder.path());
        }
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.tool(program).args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Ovn {
    fn drop(&mut self) {
        self.northbound.iter_mut().chain(&mut self.others).for_each(end);
    }
}

fn end(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Replaces what has the form of a UUID.
fn without_uuids(line: &str) -> String {
    const LENGTH: usize = 36;
    let mut shown = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let is_uuid =
            rest.get(..LENGTH).is_some_and(|text| text.parse::<trieste_ovsdb::uuid::Uuid>().is_ok());
        let width = if is_uuid { LENGTH } else { first.len_utf8() };
        shown += if is_uuid { "UUID" } else { &rest[..width] };
        rest = &rest[width..];
    }
    shown
}

/// Returns the golden dump: what the proposal's recipe makes of the fake topology of one node.
pub(crate) fn golden() -> String {
    std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden-nb.txt"))
        .unwrap()
}
