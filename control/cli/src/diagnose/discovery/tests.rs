//! A service that is broken at each step of the walk: exactly that step says so.

use serde_json::json;
use trieste_control::api::{Object, annotation};

use super::answers::Expected;
use super::evidence::Deployment;
use super::*;
use crate::discovery::Objects;
use crate::discovery::tests::{WELL, export, import, objects, slice};

/// A cluster west in which everything is well.
fn evidence(objects: Objects) -> Evidence {
    let two = Deployment { ready: 2, wanted: 2 };
    let address: std::net::IpAddr = "10.96.0.77".parse().unwrap();
    let kube = KubeFacts {
        namespace: "submariner-operator".to_owned(),
        agent: Ok(Some(Deployment { ready: 1, wanted: 1 })),
        dns: Ok(Some(two)),
        service: Ok(Some(vec![address])),
        forwards: Ok(Some([("clusterset.local".to_owned(), vec![address])].into())),
        zones: vec!["clusterset.local".to_owned()],
        namespaces: vec!["shop".to_owned()],
        pod: Some("agent-1".to_owned()),
    };
    Evidence { discovery: Discovery::new(objects), kube: Some(kube) }
}

/// One service of west and east alone.
fn web() -> Objects {
    let mut objects = objects();
    objects.imports.truncate(1);
    objects.slices.truncate(2);
    objects
}

fn name() -> Name {
    Name { namespace: "shop".to_owned(), name: "web".to_owned() }
}

/// The steps that have something to say at least this bad, with what they say.
fn said(evidence: &Evidence, at_least: Outcome) -> Vec<(&'static str, Vec<String>)> {
    let steps = walk(evidence, Some(&name())).steps.into_iter();
    let told = steps.filter_map(|step| {
        let State::Done(remarks) = step.state else { return None };
        let texts: Vec<String> =
            remarks.into_iter().filter(|(outcome, _)| *outcome >= at_least).map(|(_, text)| text).collect();
        (!texts.is_empty()).then_some((step.title, texts))
    });
    told.collect()
}

fn conditions(objects: &mut Objects, conditions: &[(&str, &str, &str)]) {
    objects.exports = vec![export("web", conditions)];
}

#[test]
fn where_all_is_well_every_step_says_nothing() {
    let evidence = evidence(web());
    let walked = walk(&evidence, None);
    assert!(walked.steps.iter().all(|step| step.state == State::Done(Vec::new())), "{:?}", walked.steps);
    let names: Vec<String> = walked.well.iter().map(|service| service.name.to_string()).collect();
    assert_eq!((names, walked.is_forwarded), (vec!["shop/web".to_owned()], true));
}

/// What breaks the objects, the step that says so, and what it says.
type ObjectCase = (fn(&mut Objects), &'static str, &'static str);

const OBJECT_CASES: [ObjectCase; 13] = [
    (
        |objects| (objects.exports, objects.imports) = (Vec::new(), Vec::new()),
        "Checking exports and imports",
        "trieste export service web -n shop",
    ),
    (
        |objects| conditions(objects, &[]),
        "Checking the conditions of exports",
        "the export has no conditions",
    ),
    (
        |objects| conditions(objects, &[("Valid", "False", "ServiceUnavailable")]),
        "Checking the conditions of exports",
        "Valid is False: ServiceUnavailable: about Valid: make a service",
    ),
    (
        |objects| {
            let excluded = [
                ("Valid", "True", ""),
                ("Ready", "False", "Failed"),
                ("Conflict", "True", "ConflictingType"),
            ];
            conditions(objects, &excluded);
        },
        "Checking the conditions of exports",
        "Conflict is True: ConflictingType",
    ),
    (
        |objects| conditions(objects, &[("Valid", "True", "Valid")]),
        "Checking that the broker has the exports",
        "no condition Ready",
    ),
    (
        |objects| conditions(objects, &[("Valid", "True", ""), ("Ready", "False", "Pending")]),
        "Checking that the broker has the exports",
        "can the agent reach the broker",
    ),
    (
        |objects| conditions(objects, &[("Valid", "True", ""), ("Ready", "False", "Failed")]),
        "Checking that the broker has the exports",
        "the broker refuses it",
    ),
    (|objects| objects.imports.clear(), "Checking the imports", "this cluster has no import"),
    (
        |objects| {
            objects.imports[0].body.insert("spec".to_owned(), json!({"type": "Odd"}));
        },
        "Checking the imports",
        "the import cannot be used",
    ),
    (
        |objects| objects.slices.clear(),
        "Checking that endpoints are ready",
        "no EndpointSlice of east, west is here",
    ),
    (
        |objects| {
            objects.slices[0] = slice("web", "west", &[("10.1.0.1", false)]);
            objects.slices[1] = slice("web", "east", &[("fd00:2::1", false)]);
        },
        "Checking that endpoints are ready",
        "no endpoint is ready in east, west",
    ),
    (
        |objects| {
            objects.slices = vec![slice("web", "north", &[("fd00:3::1", true)])];
            objects.imports = vec![import("web", "ClusterSetIP", &["north"])];
        },
        "Checking that gateways are connected to exporting clusters",
        "no gateway of this cluster is connected to north",
    ),
    (
        |objects| {
            objects.slices.remove(0);
            objects.imports = vec![import("web", "ClusterSetIP", &["east"])];
            let key = annotation::ROUTING.to_owned();
            objects.imports[0].metadata.annotations.insert(key, "local-only".to_owned());
        },
        "Checking that gateways are connected to exporting clusters",
        "its routing is local-only",
    ),
];

#[test]
fn a_service_that_is_broken_in_its_objects_is_named_by_that_step_alone() {
    for (index, (change, step, text)) in OBJECT_CASES.iter().enumerate() {
        let mut objects = web();
        change(&mut objects);
        let evidence = evidence(objects);
        let said = said(&evidence, Outcome::Failure);
        assert_eq!(said.len(), 1, "case {index}: {said:?}");
        assert!(
            said[0].0 == *step && said[0].1.len() == 1 && said[0].1[0].contains(text),
            "case {index}: {said:?}"
        );
        assert!(walk(&evidence, Some(&name())).well.is_empty(), "case {index}: it is not asked for");
    }
}

/// What breaks the cluster, the step that says so, and what it says.
type ClusterCase = (fn(&mut KubeFacts), &'static str, &'static str);

#[test]
fn a_cluster_that_lacks_something_is_named_by_that_step_alone() {
    let none = |kube: &mut KubeFacts| kube.agent = Ok(None);
    let cases: [ClusterCase; 8] = [
        (none, "Checking the agent", "there is no Deployment submariner-lighthouse-agent"),
        (
            |kube| kube.agent = Ok(Some(Deployment { ready: 0, wanted: 1 })),
            "Checking the agent",
            "none of 1 pods is ready",
        ),
        (
            |kube| kube.dns = Ok(None),
            "Checking the DNS server",
            "there is no Deployment submariner-lighthouse-coredns",
        ),
        (
            |kube| kube.dns = Ok(Some(Deployment { ready: 0, wanted: 2 })),
            "Checking the DNS server",
            "none of 2 pods is ready",
        ),
        (|kube| kube.service = Ok(None), "Checking the DNS server", "there is no Service"),
        (
            |kube| kube.forwards = Ok(Some([].into())),
            "Checking that the cluster's DNS forwards to the DNS server",
            "names of clusterset.local are not forwarded: the cluster's DNS has to forward them to 10.96.0.77",
        ),
        (
            |kube| {
                let other = vec!["10.96.0.78".parse().unwrap()];
                kube.forwards = Ok(Some([("clusterset.local".to_owned(), other)].into()));
            },
            "Checking that the cluster's DNS forwards to the DNS server",
            "are forwarded to 10.96.0.78 instead",
        ),
        (
            |kube| kube.zones.push("set.example".to_owned()),
            "Checking that the cluster's DNS forwards to the DNS server",
            "names of set.example are not forwarded",
        ),
    ];
    for (index, (change, step, text)) in cases.into_iter().enumerate() {
        let mut evidence = evidence(web());
        change(evidence.kube.as_mut().unwrap());
        let said = said(&evidence, Outcome::Warning);
        assert!(
            said.len() == 1 && said[0].0 == step && said[0].1[0].contains(text),
            "case {index}: {said:?}"
        );
        let is_asked = walk(&evidence, None).is_forwarded;
        assert_eq!(is_asked, step == "Checking the agent", "case {index}");
    }
}

#[test]
fn what_an_agent_that_is_away_has_not_done_is_the_agents() {
    let undone: [fn(&mut Objects); 4] = [
        |objects| conditions(objects, &[]),
        |objects| conditions(objects, &[("Valid", "True", ""), ("Ready", "False", "Pending")]),
        |objects| objects.imports.clear(),
        |objects| objects.slices.clear(),
    ];
    for (index, change) in undone.into_iter().enumerate() {
        let mut objects = web();
        change(&mut objects);
        let mut evidence = evidence(objects);
        evidence.kube.as_mut().unwrap().agent = Ok(None);
        let said = said(&evidence, Outcome::Warning);
        assert!(said.len() == 1 && said[0].0 == "Checking the agent", "case {index}: {said:?}");
    }
}

#[test]
fn what_works_in_part_is_a_warning_and_is_asked_for() {
    let mut objects = web();
    objects.slices[1] = slice("web", "east", &[("10.2.0.1", false)]);
    objects.imports = vec![import("web", "ClusterSetIP", &["west", "east", "south"])];
    conditions(&mut objects, &[WELL, &[("Conflict", "True", "ConflictingPorts")]].concat());
    let mut evidence = evidence(objects);
    let kube = evidence.kube.as_mut().unwrap();
    kube.dns = Ok(Some(Deployment { ready: 1, wanted: 2 }));
    kube.forwards = Ok(None);
    kube.agent = Err("may not".to_owned());
    let found = said(&evidence, Outcome::Warning);
    let titles: Vec<&str> = found.iter().map(|(title, _)| *title).collect();
    assert_eq!(
        titles,
        [
            "Checking the conditions of exports",
            "Checking the agent",
            "Checking that endpoints are ready",
            "Checking the DNS server",
            "Checking that the cluster's DNS forwards to the DNS server"
        ]
    );
    assert_eq!(found[2].1.len(), 2, "{found:?}");
    assert!(said(&evidence, Outcome::Failure).is_empty());
    let walked = walk(&evidence, None);
    assert!(walked.well.len() == 1 && walked.is_forwarded);
}

#[test]
fn without_kubernetes_its_steps_are_not_applicable_and_without_services_the_rest_is_not_reached() {
    let mut evidence = evidence(web());
    evidence.kube = None;
    let states = |evidence: &Evidence| -> Vec<State> {
        walk(evidence, None).steps.into_iter().map(|step| step.state).collect()
    };
    let found = states(&evidence);
    assert_eq!(found.iter().filter(|state| **state == State::NotApplicable).count(), 3);
    assert!(
        found.iter().all(|state| matches!(state, State::NotApplicable) || *state == State::Done(Vec::new()))
    );
    evidence.discovery = Discovery::new(Objects::default());
    let found = states(&evidence);
    assert_eq!(found.iter().filter(|state| **state == State::NotReached).count(), 5, "{found:?}");
}

#[test]
fn a_missing_namespace_is_named() {
    let mut objects = web();
    objects.imports.clear();
    let mut evidence = evidence(objects);
    evidence.kube.as_mut().unwrap().namespaces = vec!["default".to_owned()];
    let found = said(&evidence, Outcome::Failure);
    assert!(
        found[0].1[0].ends_with("make the namespace shop here, without which nothing is imported, or join with --missing-namespaces"),
        "{found:?}"
    );
}

fn expected(objects: Objects) -> Vec<Expected> {
    Discovery::new(objects).services().iter().flat_map(Expected::of).collect()
}

fn asked(code: &str, answers: &[&str]) -> Answer {
    Ok(ask::Asked {
        server: "10.96.0.10:53".parse().unwrap(),
        name: "web.shop.svc.clusterset.local".to_owned(),
        rtype: "A".to_owned(),
        code: code.to_owned(),
        answers: answers.iter().map(|data| ("A".to_owned(), (*data).to_owned())).collect(),
        is_over_tcp: false,
        milliseconds: 1,
    })
}

#[test]
fn clusterset_ips_are_asked_for_by_family() {
    let questions = |ips: &[&str]| -> Vec<(&str, Vec<String>)> {
        let mut objects = web();
        objects.imports[0].body["spec"]["ips"] = json!(ips);
        let texts = |question: &Expected| question.now.iter().map(ToString::to_string).collect();
        expected(objects).iter().map(|question| (question.rtype, texts(question))).collect()
    };
    let both = [("A", vec!["243.0.0.1".to_owned()]), ("AAAA", vec!["fd00:243::1".to_owned()])];
    assert_eq!(questions(&["243.0.0.1"]), both[..1]);
    assert_eq!(questions(&["fd00:243::1"]), both[1..]);
    assert_eq!(questions(&["243.0.0.1", "fd00:243::1"]), both);
}

#[test]
fn an_answer_is_compared_with_what_the_objects_say() {
    let question = expected(web()).remove(0);
    assert_eq!((question.name.as_str(), question.rtype), ("web.shop.svc.clusterset.local", "A"));
    let judged = |answer: &Answer| question.evaluate(answer);
    assert_eq!(judged(&asked("NOERROR", &["10.1.0.1"])), None);
    for (answer, outcome, text) in [
        (
            asked("NXDOMAIN", &[]),
            Outcome::Failure,
            "shop/web: web.shop.svc.clusterset.local A is NXDOMAIN at 10.96.0.10:53",
        ),
        (asked("SERVFAIL", &[]), Outcome::Failure, "has not read all objects yet"),
        (asked("REFUSED", &[]), Outcome::Failure, "is not for this zone"),
        (
            asked("NOERROR", &[]),
            Outcome::Failure,
            "has no address at 10.96.0.10:53, and should have 10.1.0.1",
        ),
        (
            asked("NOERROR", &["10.2.0.1"]),
            Outcome::Warning,
            "is 10.2.0.1 at 10.96.0.10:53, and should be 10.1.0.1",
        ),
        (asked("NOERROR", &["10.9.9.9"]), Outcome::Failure, "no EndpointSlice has that address"),
        (Err("no reply".to_owned()), Outcome::Failure, "has no answer: no reply"),
    ] {
        let found = judged(&answer).unwrap();
        assert!(found.0 == outcome && found.1.contains(text), "{found:?}");
    }
    let server = "10.96.0.77:53".parse().unwrap();
    assert!(question.evaluate_direct(server, &asked("NOERROR", &["10.1.0.1"])).contains("does not forward"));
    assert!(
        question
            .evaluate_direct(server, &asked("NXDOMAIN", &[]))
            .starts_with("nor does the DNS server itself")
    );
}

#[test]
fn both_families_are_asked_for_and_all_pods_of_a_headless_service() {
    let found = expected(objects());
    let told: Vec<(&str, &str, usize)> =
        found.iter().map(|question| (question.about.as_str(), question.rtype, question.now.len())).collect();
    assert_eq!(told, [("shop/db", "A", 1), ("shop/db", "AAAA", 1), ("shop/web", "A", 1)]);
    assert_eq!(found[0].ever.len(), 2, "north's as well, which is not connected");
    let mut of_set: Vec<Object> = objects().imports;
    of_set[0].body["spec"]["ips"] = json!(["243.0.0.1", "fd00:243::1"]);
    let found = expected(Objects { imports: of_set, ..web() });
    let web: Vec<String> = found.iter().flat_map(|question| &question.now).map(ToString::to_string).collect();
    assert_eq!(web, ["243.0.0.1", "fd00:243::1"]);
}

#[test]
fn a_pods_words_are_an_answer_or_a_reason() {
    let ran = |failure: Option<&str>, stdout: &str, stderr: &str| exec::Ran {
        stdout: stdout.as_bytes().to_vec(),
        stderr: stderr.as_bytes().to_vec(),
        failure: failure.map(str::to_owned),
    };
    let document = serde_json::to_string(&asked("NOERROR", &["10.1.0.1"]).unwrap()).unwrap();
    assert_eq!(read(&ran(None, &document, "")), Ok(asked("NOERROR", &["10.1.0.1"])));
    assert!(read(&ran(None, "hello", "")).unwrap_err().contains("makes no sense"));
    assert_eq!(
        read(&ran(Some("exit 1"), "", "trieste-discovery ask: no reply\n")),
        Ok(Err("no reply".to_owned()))
    );
    let image = read(&ran(Some("executable file not found"), "", "")).unwrap_err();
    assert!(image.contains("an image of Trieste"), "{image}");
}

#[test]
fn a_service_on_the_command_line_has_a_namespace() {
    assert_eq!("shop/web".parse::<ServiceArg>().unwrap().0, name());
    for wrong in ["web", "shop/", "/web", "a/b/c", "a b/c"] {
        assert!(wrong.parse::<ServiceArg>().is_err(), "{wrong}");
    }
}
