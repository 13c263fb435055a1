//! What files hold: as the store writes them, as people do, and damaged ones.

use std::os::unix::fs::PermissionsExt as _;

use trieste_control::store::FileProblem;

use super::*;

#[tokio::test]
async fn files_are_readable_by_all_and_directories_too() {
    let lab = Lab::new();
    lab.store.create(sample("a")).await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&lab.file("a")), 0o644);
    assert_eq!(mode(&lab.dir()), 0o755);
    assert_eq!(mode(lab.dir().parent().unwrap()), 0o755);
}

#[tokio::test]
async fn a_file_is_what_a_person_would_write() {
    let lab = Lab::new();
    let made = lab.store.create(sample("a")).await.unwrap();
    let text = fs::read_to_string(lab.file("a")).unwrap();
    assert!(text.starts_with("apiVersion: submariner.io/v1\nkind: Cluster\nmetadata:\n"), "{text}");
    assert!(!text.contains("resourceVersion"), "the version is not in the file: {text}");
    // The same file in another store, copied by hand, is the same object.
    let other = Lab::new();
    fs::create_dir_all(other.dir()).unwrap();
    fs::copy(lab.file("a"), other.file("a")).unwrap();
    assert_eq!(other.store.get(&key("a")).await.unwrap(), Some(made));
}

#[tokio::test]
async fn an_object_written_by_hand_is_complete_and_can_be_updated() {
    let lab = Lab::new();
    lab.write("by-hand.yaml", &hand_written("by-hand"));
    let object = lab.store.get(&key("by-hand")).await.unwrap().unwrap();
    assert_eq!(object.metadata.namespace, NS, "the directory's namespace is filled in");
    assert!(object.metadata.creation_timestamp.is_some() && object.metadata.resource_version.is_some());
    let updated = modify(&lab.store, &key("by-hand"), annotate).await.unwrap();
    assert!(updated.metadata.uid.is_some());
}

#[tokio::test]
async fn an_edit_by_hand_is_a_new_version_and_is_not_overwritten_unseen() {
    let lab = Lab::new();
    let mut made = lab.store.create(sample("a")).await.unwrap();
    let text = fs::read_to_string(lab.file("a")).unwrap();
    // The same length and, on most machines, within the same tick of the file system's clock.
    lab.write("a.yaml", &text.replace("100.1.0.0/16", "100.9.0.0/16"));
    annotate(&mut made);
    let late = lab.store.update(made).await;
    assert!(matches!(late, Err(StoreError::Conflict { .. })), "{late:?}");
    let seen = lab.store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!(seen.body["spec"]["service_cidr"][0], "100.9.0.0/16");
}

#[tokio::test]
async fn bad_files_are_named_with_their_field_and_hide_only_themselves() {
    let lab = Lab::new();
    lab.store.create(sample("good")).await.unwrap();
    let good = fs::read_to_string(lab.file("good")).unwrap();
    let cases: [(&str, String, Option<&str>, &str); 12] = [
        ("empty.yaml", String::new(), None, "is empty"),
        (
            "cut.yaml",
            format!("{}\n  spec: [", &good[..good.len() / 2]),
            None,
            "is not YAML: unclosed bracket",
        ),
        ("text.yaml", "hello".to_owned(), None, "is not a YAML mapping"),
        ("two.yaml", format!("{good}---\n{good}"), None, "is not YAML"),
        ("list.yaml", "apiVersion: v1\nkind: List\nitems: []\n".to_owned(), Some("apiVersion"), "is `v1`"),
        ("kind.yaml", good.replace("kind: Cluster", "kind: Endpoint"), Some("kind"), "is `Endpoint` in the"),
        ("type.yaml", good.replace("- blue", "- 7"), Some("spec.color_codes[0]"), "invalid type"),
        (
            "field.yaml",
            good.replace("cluster_cidr", "cluster_cider"),
            Some("spec.cluster_cidr"),
            "is missing",
        ),
        ("ns.yaml", good.replace(NS, "elsewhere"), Some("metadata.namespace"), "is `elsewhere` in the"),
        (
            "name.yaml",
            good.replace("name: good", "name: ../good"),
            Some("metadata.name"),
            "`../good` has an empty part",
        ),
        ("twice.yaml", good.clone(), Some("metadata.name"), "is `good`, which"),
        ("notes.txt", "remember".to_owned(), None, "is not a YAML file"),
    ];
    for (name, text, ..) in &cases {
        lab.write(name, text);
    }
    fs::write(lab.dir().join("binary.yaml"), [0xff, 0xfe]).unwrap();
    fs::write(lab.dir().join("huge.yaml"), vec![b'#'; 2 << 20]).unwrap();
    for harmless in [".hidden.yaml.swp", "good.yaml~", "#good.yaml#"] {
        lab.write(harmless, "garbage: [");
    }

    assert_eq!(lab.names().await, ["good"]);
    let problems = lab.store.problems();
    for (name, _, field, reason) in cases {
        let found = problem_of(&problems, &lab.dir().join(name));
        assert_eq!(found.field.as_deref(), field, "{found}");
        assert!(found.reason.contains(reason), "{found}");
        assert!(found.to_string().contains(name), "{found}");
    }
    assert_eq!(problems.len(), 14, "{problems:#?}");
    lab.store.create(sample("another")).await.unwrap();
    assert_eq!(lab.names().await, ["another", "good"]);
    assert!(lab.dir().join("empty.yaml").exists(), "a user's file was deleted");

    // A repaired file is an object, and no problem any more.
    lab.write("cut.yaml", &hand_written("cut"));
    assert_eq!(lab.names().await, ["another", "cut", "good"]);
    assert_eq!(lab.store.problems().len(), 13);
}

#[tokio::test]
async fn a_file_that_becomes_unreadable_counts_as_it_last_was_and_is_set_aside_by_a_write() {
    let lab = Lab::new();
    let made = lab.store.create(sample("a")).await.unwrap();
    lab.write("a.yaml", "apiVersion: submariner.io/v1\nkind: Clu");
    assert_eq!(
        lab.store.get(&key("a")).await.unwrap(),
        Some(made.clone()),
        "a truncated file tears nothing down"
    );
    assert_eq!(lab.store.problems().len(), 1);

    let mut healed = made;
    annotate(&mut healed);
    lab.store.update(healed).await.unwrap();
    assert_eq!(lab.store.problems(), []);
    assert_eq!(lab.set_aside().len(), 1, "the corrupt file is somebody's work and must not be lost");
}

#[tokio::test]
async fn a_corrupt_file_that_was_never_readable_is_set_aside_by_a_creation() {
    let lab = Lab::new();
    lab.write("a.yaml", "precious: [");
    assert!(lab.names().await.is_empty());
    lab.store.create(sample("a")).await.unwrap();
    let aside = lab.set_aside();
    assert_eq!(fs::read_to_string(&aside[0]).unwrap(), "precious: [");
    assert_eq!(lab.names().await, ["a"]);
}

#[tokio::test]
async fn of_two_files_that_claim_one_object_the_one_named_after_it_counts_and_deletion_is_of_both() {
    let lab = Lab::new();
    lab.write("0-first.yaml", &hand_written("a").replace("100.1.0.0/16", "100.8.0.0/16"));
    lab.store.list(Kind::Cluster, NS).await.unwrap();
    assert_eq!(lab.store.problems(), [], "a single file may have any name");
    lab.write("a.yaml", &hand_written("a"));
    let object = lab.store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!(object.body["spec"]["service_cidr"][0], "100.1.0.0/16");
    assert_eq!(lab.store.problems()[0].path, lab.dir().join("0-first.yaml"));

    lab.write("0-first.yaml", "precious: [");
    lab.store.delete(&key("a")).await.unwrap();
    assert_eq!(lab.store.get(&key("a")).await.unwrap(), None, "the duplicate came back from the dead");
    assert_eq!(lab.set_aside().len(), 1, "the duplicate had become somebody's work, and was deleted");
}

#[tokio::test]
async fn a_file_named_after_one_object_that_holds_another_keeps_it() {
    let lab = Lab::new();
    lab.write("a.yaml", &hand_written("b"));
    lab.store.create(sample("a")).await.unwrap();
    assert_eq!(lab.names().await, ["a", "b"]);
    assert_eq!((lab.store.problems(), lab.set_aside()), (vec![], vec![]));
    modify(&lab.store, &key("a"), annotate).await.unwrap();
    lab.store.delete(&key("b")).await.unwrap();
    assert_eq!(lab.names().await, ["a"]);
}

fn problem_of<'a>(problems: &'a [FileProblem], path: &Path) -> &'a FileProblem {
    let found = problems.iter().find(|problem| problem.path == path);
    found.unwrap_or_else(|| panic!("no word of {} in {problems:#?}", path.display()))
}
