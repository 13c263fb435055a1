//! Breaking the underlay: loss, partition, black holes, links down. nftables' ingress hook does it, since the kernel
//! may lack netem. A fault ends when dropped.

use anyhow::Context;

use crate::command::Run;
use crate::netns::Namespace;

/// A fault on one device of one namespace; one per device at a time.
#[derive(Debug)]
pub struct Fault {
    namespace: Namespace,
    undo: Undo,
}

#[derive(Debug)]
enum Undo {
    Table(String),
    LinkUp(String),
}

impl Fault {
    /// Drops every `n`th packet that arrives: exact and repeatable.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn lose_every(namespace: &Namespace, device: &str, n: u32) -> anyhow::Result<Self> {
        Self::ingress(namespace, device, &format!("numgen inc mod {n} == 0 counter drop"))
    }

    /// Drops this many of 1000 arriving packets at random.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn lose_per_mille(namespace: &Namespace, device: &str, per_mille: u32) -> anyhow::Result<Self> {
        Self::ingress(namespace, device, &format!("numgen random mod 1000 < {per_mille} counter drop"))
    }

    /// Drops everything that arrives: a partition in one direction.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn partition(namespace: &Namespace, device: &str) -> anyhow::Result<Self> {
        Self::ingress(namespace, device, "counter drop")
    }

    /// Silently drops arriving packets above this many bytes (IP header included): an MTU black hole.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn black_hole_above(namespace: &Namespace, device: &str, bytes: u32) -> anyhow::Result<Self> {
        Self::ingress(namespace, device, &format!("meta length > {bytes} counter drop"))
    }

    /// Takes a link down.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn link_down(namespace: &Namespace, device: &str) -> anyhow::Result<Self> {
        namespace.ip(&format!("link set {device} down"))?;
        Ok(Self { namespace: namespace.clone(), undo: Undo::LinkUp(device.to_owned()) })
    }

    /// A rule of the caller's on the ingress hook.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn ingress(namespace: &Namespace, device: &str, rule: &str) -> anyhow::Result<Self> {
        Self::around(namespace, device, rule, "")
    }

    /// Rules of the caller's for what arrives at a device and for what leaves it, in force at the same moment.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn around(
        namespace: &Namespace,
        device: &str,
        arriving: &str,
        leaving: &str,
    ) -> anyhow::Result<Self> {
        let table = format!("fault_{device}");
        // nftables 1.0 wants each closing brace on a line of its own.
        let chain = |name: &str, hook: &str, rule: &str| {
            if rule.is_empty() {
                return String::new();
            }
            let hook = format!("type filter hook {hook} device \"{device}\" priority 0;");
            format!(" chain {name} {{\n  {hook}\n  {rule}\n }}\n")
        };
        let (arriving, leaving) =
            (chain("arriving", "ingress", arriving), chain("leaving", "egress", leaving));
        namespace.nft(&format!("table netdev {table} {{\n{arriving}{leaving}}}\n"))?;
        Ok(Self { namespace: namespace.clone(), undo: Undo::Table(table) })
    }

    /// How many packets the fault has hit so far.
    ///
    /// # Errors
    /// If nft refuses, or the fault is a link that is down.
    pub fn hits(&self) -> anyhow::Result<u64> {
        let Undo::Table(table) = &self.undo else { anyhow::bail!("a link that is down counts nothing") };
        let text = self.namespace.run("nft").args(["list", "table", "netdev", table]).stdout()?;
        let counts: Option<Vec<u64>> = text
            .split("counter packets ")
            .skip(1)
            .map(|after| after.split_whitespace().next()?.parse().ok())
            .collect();
        let counts = counts.filter(|counts| !counts.is_empty());
        Ok(counts.with_context(|| format!("nft shows no counter:\n{text}"))?.iter().sum())
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        let name = self.namespace.name();
        let undo = match &self.undo {
            Undo::Table(table) => Run::in_namespace(name, "nft").args(["delete", "table", "netdev", table]),
            Undo::LinkUp(device) => Run::new("ip").args(["-n", name, "link", "set", device, "up"]),
        };
        // The namespace may be gone already, and the fault with it.
        let _ = undo.finish();
    }
}
