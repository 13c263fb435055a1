//! Random writes while the rows that are followed change at random.

use std::collections::{BTreeMap, BTreeSet};

use trieste_ovsdb::client::Client;
use trieste_ovsdb::operation::{Condition, Mutation, Mutator, Operation};
use trieste_ovsdb::outcome::OperationResult;
use trieste_ovsdb::replica::Replica;
use trieste_ovsdb::spec::Rows;
use trieste_ovsdb::uuid::Uuid;
use trieste_ovsdb::value::{Datum, Row};

use crate::follower::{Follower, options, spec};
use crate::server::Server;

const TABLE: &str = "Logical_Router";
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const STEPS: usize = 300;

/// Numbers that are the same in each run (Knuth's MMIX generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.below(NAMES.len())]
    }

    fn operation(&mut self) -> Operation {
        let table = TABLE.to_owned();
        let conditions = vec![Condition::equal("name", self.name())];
        let options = Datum::map((0..self.below(3)).map(|key| (key.to_string(), self.name())));
        match self.below(6) {
            0 | 1 => {
                let name = self.name();
                let row = Row::from([("name".to_owned(), name.into()), ("options".to_owned(), options)]);
                Operation::Insert { table, row, uuid_name: None }
            }
            2 => Operation::Delete { table, conditions },
            3 => {
                let enabled = Datum::set((self.below(3) > 0).then(|| self.below(2) > 0));
                let row = Row::from([("options".to_owned(), options), ("enabled".to_owned(), enabled)]);
                Operation::Update { table, conditions, row }
            }
            4 => {
                let row = Row::from([("name".to_owned(), self.name().into())]);
                Operation::Update { table, conditions, row }
            }
            _ => {
                let mutations = vec![Mutation::new("options", Mutator::Insert, options)];
                Operation::Mutate { table, conditions, mutations }
            }
        }
    }

    /// Names of the rows to be followed, and the condition.
    fn rows(&mut self) -> (BTreeSet<&'static str>, Rows) {
        match self.below(8) {
            0 => (BTreeSet::new(), Rows::Nothing),
            1 => (NAMES.into(), Rows::All),
            _ => {
                let names: BTreeSet<_> = (0..=self.below(3)).map(|_| self.name()).collect();
                let rows = names.iter().map(|&name| Condition::equal("name", name)).collect();
                (names, Rows::AnyOf(rows))
            }
        }
    }
}

/// Reads the rows that have one of the names from the server.
async fn select(client: &Client, names: &BTreeSet<&str>) -> BTreeMap<Uuid, Row> {
    let columns = ["_uuid", "name", "policies", "static_routes", "options", "enabled"];
    let columns = columns.map(str::to_owned).to_vec();
    let select = Operation::Select { table: TABLE.to_owned(), conditions: Vec::new(), columns };
    let results = client.transact(vec![select]).await.unwrap();
    let [OperationResult::Rows(rows)] = &results[..] else { panic!("{results:?}") };
    let wanted = rows.iter().filter(|row| names.contains(row["name"].as_str().unwrap()));
    wanted.cloned().map(|mut row| (row.remove("_uuid").unwrap().as_uuid().unwrap(), row)).collect()
}

#[tokio::test]
async fn plugin_ovn_db_a_replica_is_exact_while_rows_come_and_go_by_conditions() {
    let server = Server::start(&[]);
    let mut follower = Follower::with(&server.unix(), spec(), options());
    let mut writer = Follower::with(&server.unix(), spec(), options());
    let generation = follower.synced().await.generation();
    writer.synced().await;
    let mut numbers = Numbers(1);
    let mut names: BTreeSet<&str> = NAMES.into();
    for step in 0..STEPS {
        let operations = (0..=numbers.below(3)).map(|_| numbers.operation()).collect();
        if numbers.below(3) == 0 {
            // Both at once: the server decides which is first.
            let rows;
            (names, rows) = numbers.rows();
            let change = follower.client.follow_rows(TABLE, rows);
            let (changed, written) = tokio::join!(change, writer.client.transact(operations));
            changed.unwrap();
            written.unwrap();
        } else {
            writer.client.transact(operations).await.unwrap();
        }
        let expected = select(&writer.client, &names).await;
        let is_exact = |replica: &Replica| {
            let rows: BTreeMap<Uuid, Row> =
                replica.rows(TABLE).map(|(uuid, row)| (uuid, row.clone())).collect();
            rows == expected
        };
        follower.until(&format!("exact after step {step}: {expected:?}"), is_exact).await;
    }
    assert_eq!(follower.replica.borrow().generation(), generation, "all of it in one session");
    assert!(writer.replica.borrow().rows(TABLE).count() > 0);
}
