use super::*;

fn parse(text: &str) -> Result<Corefile, CorefileError> {
    Corefile::parse(text, |name| (name == "PORT").then(|| "5300".to_owned()))
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn what_the_operator_writes_is_understood() {
    let block = |zone: &str| {
        format!("{zone}:53 {{\n    lighthouse\n    errors\n    health\n    ready\n    prometheus :9153\n}}\n")
    };
    let corefile = parse(&(block("clusterset.local") + &block("supercluster.local"))).unwrap();
    assert_eq!(corefile.zones, ["clusterset.local", "supercluster.local"]);
    assert_eq!(corefile.ports, [Some(53)]);
    assert_eq!(corefile.health, "[::]:8080".parse().ok());
    assert_eq!(corefile.ready, "[::]:8181".parse().ok());
    assert_eq!(corefile.metrics, "[::]:9153".parse().ok());
    assert_eq!((corefile.ttl, corefile.lameduck), (None, None));
}

#[test]
fn options_comments_quotations_and_variables_are_read() {
    let text = "# a comment\n.:{$PORT} example.org {\n  lighthouse \"clusterset.local\" { # why\n    fallthrough \
                in-addr.arpa\n    ttl 30\n  }\n  bind 10.0.0.1 fd00::1\n  health 127.0.0.1:8081 {\n    lameduck \
                1500ms\n  }\n  prometheus\n}\nexample.org {\n lighthouse {\n ttl 10\n }\n}";
    let corefile = parse(text).unwrap();
    assert_eq!(corefile.zones, ["clusterset.local", "example.org"]);
    assert_eq!(corefile.ports, [Some(5_300), None]);
    assert_eq!(corefile.bind.len(), 2);
    assert_eq!((corefile.ttl, corefile.lameduck), (Some(10), Some(2)));
    assert_eq!(corefile.health, "127.0.0.1:8081".parse().ok());
    assert_eq!((corefile.ready, corefile.metrics), (None, "127.0.0.1:9153".parse().ok()));
}

#[test]
fn what_cannot_be_served_is_refused_with_its_line() {
    assert!(error("a {\n lighthouse\n forward . 8.8.8.8\n}").starts_with("line 3: plug-in forward"));
    assert!(error("tls://a {\n lighthouse\n}").starts_with("line 1: tls://a"));
    assert!(error("10.0.0.0/8 {\n lighthouse\n}").contains("10.0.0.0/8"));
    assert!(error("a {\n lighthouse {\n ttl 3601\n }\n}").starts_with("line 3: ttl"));
    assert!(error("a {\n lighthouse {\n weight 3\n }\n}").contains("unknown property 'weight'"));
    assert!(error("a {\n lighthouse").contains("no end"));
    assert!(error("a {\n lighthouse {\n").contains("no end"));
    assert!(error("a {\n lighthouse \"\n}").contains("quotation"));
    assert!(error("a {$").contains("variable"));
    assert!(error("a\n").contains("brace"));
    assert!(error("").contains("lighthouse"));
    assert!(error("import x").contains("brace"));
    assert!(error(&"a {\n lighthouse\n}\n".repeat(65)).contains("64"));
}
