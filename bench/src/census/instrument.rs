//! callgrind's output, and which instructions lock the bus.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};

use super::Workload;

/// Where a function's file, or that of a function inlined into it, says that it is a mutex's or a lock's.
const LOCK_FILES: [&str; 6] =
    ["/parking_lot", "/lock_api", "/sync/mutex/", "/sync/rwlock/", "/sync/poison/", "/sync/once/"];
/// Functions that allocate.
const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];

/// Addresses of the program's instructions that lock the bus.
pub(super) struct Atomics(HashSet<u64>);

/// What one run did.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) allocations: u64,
    pub(super) clock_reads: u64,
    pub(super) system_calls: u64,
    pub(super) instructions: u64,
    /// Executions by address of the instruction.
    pub(super) atomics: BTreeMap<u64, u64>,
}

/// Whose an atomic instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A lock's, within boringtun.
    BoringtunLock,
    /// A lock's elsewhere.
    Lock,
    /// Something else: a reference count, a queue, a counter.
    Other,
}

/// Disassembles the program.
///
/// # Errors
/// When objdump (binutils) is missing or fails.
pub(super) fn atomic_instructions(program: &Path) -> anyhow::Result<Atomics> {
    let code = output(Command::new("objdump").args(["--disassemble", "--no-show-raw-insn"]).arg(program))?;
    Ok(Atomics(code.lines().filter_map(atomic_address).collect()))
}

/// The address, if the line shows an instruction that locks the bus.
fn atomic_address(line: &str) -> Option<u64> {
    let (address, instruction) = line.split_once(":\t")?;
    let is_exchange = instruction.starts_with("xchg") && instruction.contains('(');
    (instruction.starts_with("lock ") || is_exchange)
        .then(|| u64::from_str_radix(address.trim(), 16).ok())
        .flatten()
}

/// Runs the workload under callgrind.
///
/// # Errors
/// When valgrind is missing or fails.
pub(super) fn run(program: &Path, workload: &Workload, atomics: &Atomics) -> anyhow::Result<Tally> {
    let file = std::env::temp_dir().join(format!("trieste-bench-{}.callgrind", std::process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--dump-instr=yes", "--collect-systime=yes"]);
    command.args(["--compress-strings=no", "--compress-pos=no"]);
    command.arg(format!("--callgrind-out-file={}", file.display()));
    command.arg(program).args(["census-workload", workload.case.name(), &workload.passes.to_string()]);
    let result = output(&mut command).and_then(|_| Ok(std::fs::read_to_string(&file)?));
    let _ = std::fs::remove_file(&file);
    tally(&result?, program, atomics)
}

fn tally(profile: &str, program: &Path, atomics: &Atomics) -> anyhow::Result<Tally> {
    ensure!(
        profile.lines().any(|line| line == "events: Ir sysCount sysTime"),
        "callgrind counted other events than asked for"
    );
    let mut tally = Tally::default();
    let program = program.to_string_lossy();
    let (mut function, mut called, mut is_program, mut is_inclusive) = ("", "", false, false);
    for line in profile.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called = name.split('@').next().unwrap_or(name);
        } else if let Some(name) = line.strip_prefix("ob=") {
            is_program = name == program;
        } else if let Some(call) = line.strip_prefix("calls=") {
            let count: u64 = call.split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0);
            if ALLOCATORS.contains(&called) {
                tally.allocations += count;
            } else if called == "clock_gettime" {
                tally.clock_reads += count;
            }
            // The next line says what the callee cost; it is counted where the callee is.
            is_inclusive = true;
        } else if line.starts_with("0x") && !std::mem::take(&mut is_inclusive) {
            let is_clock = function.starts_with("clock_gettime");
            tally.add(line, is_clock, is_program.then_some(atomics));
        }
    }
    if tally.instructions == 0 {
        bail!("callgrind's output is not understood");
    }
    Ok(tally)
}

impl Tally {
    /// Adds a line of costs: address, line, instructions, and where they are known system calls and their time.
    fn add(&mut self, line: &str, is_clock: bool, atomics: Option<&Atomics>) {
        let mut fields = line.split(' ');
        let address = fields.next().and_then(|field| u64::from_str_radix(&field[2..], 16).ok());
        let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        let (_, instructions, system_calls) = (number(), number(), number());
        self.instructions += instructions;
        if !is_clock {
            self.system_calls += system_calls;
        }
        if let (Some(atomics), Some(address)) = (atomics, address)
            && atomics.0.contains(&address)
        {
            *self.atomics.entry(address).or_default() += instructions;
        }
    }
}

/// Says of each address whose code it is, inlined functions included.
///
/// # Errors
/// When addr2line (binutils) is missing or fails.
pub(super) fn owners(program: &Path, addresses: &[u64]) -> anyhow::Result<Vec<Owner>> {
    addresses
        .iter()
        .map(|address| {
            let mut command = Command::new("addr2line");
            command.args(["--functions", "--inlines", "--exe"]).arg(program).arg(format!("{address:#x}"));
            Ok(owner(&output(&mut command)?))
        })
        .collect()
}

fn owner(frames: &str) -> Owner {
    if !LOCK_FILES.iter().any(|file| frames.contains(file)) {
        Owner::Other
    } else if frames.contains("/boringtun-") {
        Owner::BoringtunLock
    } else {
        Owner::Lock
    }
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.output().with_context(|| format!("{name} cannot be run; install valgrind and binutils"))?;
    ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "events: Ir sysCount sysTime\n\
        ob=/bin/p\nfl=a.rs\nfn=work\n0x100 1 7\n0x104 2 7 3 9\ncfn=malloc\ncalls=5 0x9\n0x108 3 999 99\n\
        cfn=clock_gettime@@GLIBC_2.17\ncalls=2 0x9\n0x10c 3 50 2\n\
        ob=/lib/c\nfn=clock_gettime\n0x104 0 20 2\n";

    #[test]
    fn calls_are_counted_and_costs_of_callees_are_not_counted_twice() {
        let atomics = Atomics(HashSet::from([0x104]));
        let tally = tally(PROFILE, Path::new("/bin/p"), &atomics).unwrap();
        assert_eq!((tally.allocations, tally.clock_reads, tally.system_calls), (5, 2, 3));
        assert_eq!(tally.instructions, 34);
        assert_eq!(tally.atomics, BTreeMap::from([(0x104, 7)]));
    }

    #[test]
    fn instructions_that_lock_are_recognised() {
        assert_eq!(atomic_address("  1afa1d:\tlock incq 0x78(%rbx)"), Some(0x1a_fa1d));
        assert_eq!(atomic_address("  1afa27:\txchg   %rax,0x68(%rbx)"), Some(0x1a_fa27));
        assert_eq!(atomic_address("  1afa27:\txchg   %ax,%ax"), None);
        assert_eq!(atomic_address("  1afa2b:\tmov    %rax,%rbx"), None);
    }

    #[test]
    fn locks_are_told_from_counts_and_boringtuns_from_ours() {
        let lock = "core\n/rustc/x/library/core/src/sync/atomic.rs:1\nlock\n/r/lock_api-0.4/src/mutex.rs:2\n";
        assert_eq!(owner(lock), Owner::Lock);
        assert_eq!(
            owner(&format!("{lock}x\n/r/boringtun-0.7.1/src/noise/session.rs:3\n")),
            Owner::BoringtunLock
        );
        assert_eq!(owner("clone\n/rustc/x/library/alloc/src/sync.rs:9\n"), Owner::Other);
    }
}
