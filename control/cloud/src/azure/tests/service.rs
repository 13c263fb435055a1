//! What the service does: tokens, busy answers, operations that fail, versions, permissions.

use serde_json::{Value, json};

use super::super::{Credentials, Identity};
use super::cloud::{LOGIN, MANAGEMENT, SUBSCRIPTION};
use super::{Bed, prepare};
use crate::CloudError;
use crate::provider::Goal;

fn bed() -> Bed {
    let bed = Bed::new(false);
    bed.node("n1", 4, true);
    bed.node("n2", 5, false);
    bed.node("n3", 6, false);
    bed
}

#[tokio::test(start_paused = true)]
async fn busy_service_withdrawn_token_and_changes_of_others() {
    let bed = bed();
    bed.cloud.0.lock().unwrap().busy_every = 3;
    bed.cloud.0.lock().unwrap().intrusion = true;
    bed.reach(&prepare()).await.unwrap();
    bed.cloud.0.lock().unwrap().is_token_withdrawn = true;
    bed.reach(&Goal::CleanUp).await.unwrap();
    let nic = bed.cloud.get(&super::id(super::NIC, "n1-nic"));
    assert_eq!(nic["tags"], json!({"by": "somebody"}));
}

#[tokio::test(start_paused = true)]
async fn operation_that_fails_and_one_that_is_elsewhere() {
    let failed = bed();
    failed.cloud.0.lock().unwrap().next_ends =
        Some(json!({"status": "Failed", "error": {"code": "QuotaExceeded", "message": "no more groups"}}));
    let error = failed.reach(&prepare()).await.unwrap_err();
    assert!(
        matches!(&error, CloudError::Api { code, reason, .. } if code == "QuotaExceeded" && reason == "no more groups"),
        "{error}"
    );
    failed.reach(&prepare()).await.unwrap();
    let elsewhere = bed();
    elsewhere.cloud.0.lock().unwrap().foreign = Some("https://management.azure.test.evil.test".to_owned());
    let error = elsewhere.reach(&prepare()).await.unwrap_err();
    assert!(error.to_string().contains("not the service's"), "{error}");
    assert!(!elsewhere.cloud.0.lock().unwrap().log.iter().any(|line| line.contains("evil")));
}

#[tokio::test(start_paused = true)]
async fn operations_that_are_accepted_are_waited_for() {
    for end in [None, Some(Value::Null)] {
        let bed = bed();
        let before = bed.cloud.snapshot();
        for goal in [prepare(), Goal::CleanUp] {
            bed.cloud.0.lock().unwrap().accepts = true;
            bed.cloud.0.lock().unwrap().next_ends = end.clone();
            bed.reach(&goal).await.unwrap();
            let running = bed.cloud.0.lock().unwrap().operations.clone();
            assert!(running.is_empty(), "{goal:?} {end:?}: {running:?}");
        }
        assert_eq!(bed.cloud.snapshot(), before);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_still_in_use_is_removed_a_little_later() {
    for (uses, code) in [(4, None), (100, Some("CannotBeDeleted"))] {
        let bed = bed();
        let before = bed.cloud.snapshot();
        bed.reach(&prepare()).await.unwrap();
        bed.cloud.0.lock().unwrap().uses = uses;
        match (bed.reach(&Goal::CleanUp).await, code) {
            (Ok(_), None) => assert_eq!(bed.cloud.snapshot(), before),
            (Err(CloudError::Api { code, .. }), Some(end)) => assert!(code.ends_with(end), "{code}"),
            (outcome, _) => panic!("{uses}: {outcome:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rights_are_asked_for_before_the_first_change() {
    let cases = [
        (json!({"actions": ["*"], "notActions": []}), None),
        (json!({"actions": ["Microsoft.Network/*"], "notActions": []}), None),
        (json!({"actions": ["*/read"], "notActions": []}), Some("networkSecurityGroups/securityRules/write")),
        (
            json!({"actions": ["microsoft.network/*/write"], "notActions": []}),
            Some("networkSecurityGroups/join/action"),
        ),
        (
            json!({"actions": ["*"], "notActions": ["Microsoft.Network/publicIPAddresses/*"]}),
            Some("publicIPAddresses/write"),
        ),
        (
            json!({"actions": ["*"], "notActions": ["Microsoft.Network/virtualNetworks/subnets/join/action"]}),
            Some("virtualNetworks/subnets/join/action"),
        ),
        (
            json!({"actions": ["*"], "notActions": ["Microsoft.Network/publicIPAddresses/join/action"]}),
            Some("publicIPAddresses/join/action"),
        ),
    ];
    for (permission, denied) in cases {
        let bed = bed();
        bed.cloud.0.lock().unwrap().permissions = Some(permission.clone());
        let before = bed.cloud.snapshot();
        match (bed.reach(&prepare()).await, denied) {
            (Ok(_), None) => {}
            (Err(CloudError::Denied(what)), Some(denied)) => {
                assert!(what.iter().any(|what| what.contains(denied)), "{permission}: {what:?}");
                assert_eq!(bed.cloud.snapshot(), before);
            }
            (outcome, _) => panic!("{permission}: {outcome:?}"),
        }
    }
}

/// An interface that only forwards from now on is still written with the group and the address that it has.
#[tokio::test(start_paused = true)]
async fn rights_on_what_an_interface_has() {
    let bed = bed();
    let own = bed.group("own-nsg");
    let address = bed.cloud.put(super::ADDRESS, "own", json!({"location": "westeurope", "properties": {}}));
    bed.change(&super::id(super::NIC, "n1-nic"), |nic| {
        nic["properties"]["networkSecurityGroup"] = json!({"id": own});
        nic["properties"]["ipConfigurations"][0]["properties"]["publicIPAddress"] = json!({"id": address});
    });
    let joins = ["networkSecurityGroups", "publicIPAddresses", "virtualNetworks/subnets"]
        .map(|type_| format!("Microsoft.Network/{type_}/join/action"));
    let all = json!({"actions": ["*"], "notActions": joins});
    bed.cloud.0.lock().unwrap().permissions = Some(all);
    let Err(CloudError::Denied(what)) = bed.reach(&prepare()).await else { panic!("nothing is denied") };
    assert!(joins.iter().all(|join| what.iter().any(|what| what.contains(join))), "{what:?}");
    // A role on the resource itself is enough.
    let (subnet, some) = (
        super::id("Microsoft.Network/virtualNetworks", "east-vnet/subnets/workers"),
        json!({"actions": ["*"], "notActions": &joins[2..]}),
    );
    let permissions =
        |id: &str| format!("{id}/providers/microsoft.authorization/permissions").to_ascii_lowercase();
    bed.cloud.0.lock().unwrap().permissions = Some(some);
    let own = json!({"actions": ["Microsoft.Network/virtualNetworks/subnets/join/action"], "notActions": []});
    bed.cloud.0.lock().unwrap().permissions_on = Some((permissions(&subnet), own));
    bed.reach(&prepare()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn identities() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "signed.by.cluster\n").unwrap();
    let mut credentials = Credentials::from_federated("", "client-1", "tenant-1", file.path()).unwrap();
    (credentials.login, credentials.management) = (LOGIN.to_owned(), MANAGEMENT.to_owned());
    let bed = bed();
    let server = bed.cluster.server();
    let of = |credentials: Credentials| {
        let settings = super::Settings { credentials, ..super::settings(&bed) };
        super::Azure::new(&bed.cloud, &server, settings, super::clock())
    };
    crate::run::plan(&of(credentials.clone()), &prepare()).await.unwrap();
    let managed = Credentials { identity: Identity::Managed { client: None }, ..credentials.clone() };
    crate::run::plan(&of(managed), &prepare()).await.unwrap();
    let mut wrong = credentials;
    wrong.identity = Identity::Secret {
        tenant: "tenant-1".to_owned(),
        client: "client-1".to_owned(),
        secret: "hunter2".to_owned(),
    };
    let error = crate::run::plan(&of(wrong.clone()), &prepare()).await.unwrap_err();
    assert!(matches!(&error, CloudError::Api { code, .. } if code == "invalid_client"), "{error}");
    assert!(!format!("{error} {error:?} {wrong:?}").contains("hunter2"));
}

#[test]
fn authorization_files() {
    let full = json!({
        "clientId": "client-1", "clientSecret": "hunter2", "subscriptionId": SUBSCRIPTION, "tenantId": "tenant-1",
        "activeDirectoryEndpointUrl": "https://login.chinacloudapi.cn/",
        "resourceManagerEndpointUrl": "https://management.chinacloudapi.cn/",
    });
    let credentials = Credentials::from_auth_file(&full.to_string()).unwrap();
    assert_eq!(credentials.management, "https://management.chinacloudapi.cn");
    assert_eq!(credentials.login, "https://login.chinacloudapi.cn");
    for (field, value, what) in [
        ("clientSecret", json!(null), "has no `clientSecret`"),
        ("subscriptionId", json!("../other"), "is no subscription"),
        ("tenantId", json!("a/b"), "is no tenant"),
        ("resourceManagerEndpointUrl", json!("http://management.test"), "no https address"),
    ] {
        let mut file = full.clone();
        file[field] = value;
        let error = Credentials::from_auth_file(&file.to_string()).unwrap_err();
        assert!(error.to_string().contains(what) && !error.to_string().contains("hunter2"), "{error}");
    }
    assert!(
        Credentials::from_auth_file("hunter2").is_err_and(|error| !error.to_string().contains("hunter2"))
    );
}
