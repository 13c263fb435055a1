//! A service account's key, and the assertions that it signs.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

use crate::CloudError;

/// Where Google gives out tokens, for a key that does not name it.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// What is asked for: whatever the account may do.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// How long an assertion holds, in seconds: the most that Google takes
/// (<https://developers.google.com/identity/protocols/oauth2/service-account#authorizingrequests>).
const LIFETIME: i64 = 3600;
/// The encapsulation of an unencrypted PKCS#8 key (RFC 7468, section 10).
const BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const END: &str = "-----END PRIVATE KEY-----";
const MAKE_A_KEY: &str = "give the JSON file of a service account's key, as `gcloud iam service-accounts keys create FILE --iam-account=ACCOUNT` makes it";

/// A service account with its private key. No text of it has the key.
pub struct ServiceAccount {
    email: String,
    key_id: Option<String>,
    project: Option<String>,
    token_uri: String,
    pair: RsaKeyPair,
}

impl fmt::Debug for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceAccount")
            .field("email", &self.email)
            .field("project", &self.project)
            .field("token_uri", &self.token_uri)
            .finish_non_exhaustive()
    }
}

impl ServiceAccount {
    /// Reads the JSON of a key.
    ///
    /// # Errors
    /// [`CloudError::Credentials`] if it is none of a service account's, or its private key cannot be used.
    pub fn from_json(text: &str) -> Result<Self, CloudError> {
        let refused = |what: String| CloudError::credentials(what, MAKE_A_KEY);
        // Of a JSON error the position alone: a text would be a part of the file.
        let key: Value = serde_json::from_str(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            refused(format!("the credentials are no JSON (line {line}, column {column})"))
        })?;
        let field = |name: &str| key[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let kind = field("type").unwrap_or_default();
        if kind != "service_account" {
            let kind: String = kind.chars().take(40).collect();
            return Err(refused(format!(
                "the credentials are of type `{}`, and only `service_account` can be used",
                kind.escape_debug()
            )));
        }
        let email = field("client_email")
            .ok_or_else(|| refused("the service account's key has no client_email".to_owned()))?;
        let pem = field("private_key")
            .ok_or_else(|| refused("the service account's key has no private_key".to_owned()))?;
        let token_uri = field("token_uri").unwrap_or_else(|| TOKEN_URI.to_owned());
        if !is_confidential(&token_uri) {
            return Err(refused(
                "the service account's key has a token_uri that is no https address".to_owned(),
            ));
        }
        let pair = key_pair(&pem)?;
        Ok(Self { email, key_id: field("private_key_id"), project: field("project_id"), token_uri, pair })
    }

    /// Returns the project that the account belongs to.
    pub fn project(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// Returns where tokens are given out for it.
    pub(super) fn token_uri(&self) -> &str {
        &self.token_uri
    }

    /// Returns the account's address.
    pub(super) fn email(&self) -> &str {
        &self.email
    }

    /// Returns an assertion for a token (RFC 7523, section 3); `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`CloudError::Credentials`] if the key does not sign.
    pub(super) fn assertion(&self, now: i64) -> Result<String, CloudError> {
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if let Some(id) = &self.key_id {
            header["kid"] = json!(id);
        }
        let claims = json!({
            "iss": self.email, "scope": SCOPE, "aud": self.token_uri,
            "iat": now, "exp": now.saturating_add(LIFETIME),
        });
        signed(&self.pair, header.to_string().as_bytes(), claims.to_string().as_bytes())
    }
}

/// Signs with RSASSA-PKCS1-v1_5 and SHA-256; returns the compact form (RFC 7515, sections 3.1 and 5.1, appendix A.2).
fn signed(pair: &RsaKeyPair, header: &[u8], payload: &[u8]) -> Result<String, CloudError> {
    let input = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let mut signature = vec![0; pair.public().modulus_len()];
    let made = pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), input.as_bytes(), &mut signature);
    made.map_err(|_| CloudError::credentials("the service account's private key does not sign", MAKE_A_KEY))?;
    Ok(format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Reads a private key in PEM (RFC 7468): RSA in PKCS#8 (RFC 5208), as Google gives it out.
fn key_pair(pem: &str) -> Result<RsaKeyPair, CloudError> {
    let refused =
        |what: &str| CloudError::credentials(format!("the service account's private_key {what}"), MAKE_A_KEY);
    let Some((_, rest)) = pem.split_once(BEGIN) else {
        return Err(if pem.contains("-----BEGIN RSA PRIVATE KEY-----") {
            CloudError::credentials(
                "the service account's private_key is in PKCS#1",
                "convert it with `openssl pkcs8 -topk8 -nocrypt`",
            )
        } else if pem.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") {
            refused("is encrypted")
        } else {
            refused("is no PEM text that begins with BEGIN PRIVATE KEY")
        });
    };
    let Some((body, _)) = rest.split_once(END) else {
        return Err(refused("has no end: END PRIVATE KEY is missing"));
    };
    let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let der = STANDARD.decode(body).map_err(|_| refused("is damaged: it is not in base64"))?;
    RsaKeyPair::from_pkcs8(&der)
        .map_err(|reason| refused(&format!("is no RSA key that can be used: {reason}")))
}

/// Returns `true` where nobody on the way reads what is sent: with TLS, or on this machine.
fn is_confidential(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let is_here = matches!(url.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    match url.scheme_str() {
        Some("https") => url.host().is_some(),
        Some("http") => is_here,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    use super::*;

    /// The key of RFC 7515, appendix A.2, in PKCS#8; and its public half.
    const PEM: &str = include_str!("tests/rfc7515-a2.pem");
    const PUBLIC: &[u8] = include_bytes!("tests/rfc7515-a2.pub.der");

    fn json_of(pem: &str) -> Value {
        json!({"type": "service_account", "project_id": "p-1", "private_key_id": "k1", "private_key": pem,
            "client_email": "gw@p-1.iam.gserviceaccount.com", "token_uri": "https://oauth2.googleapis.com/token"})
    }

    // RFC 7515, appendix A.2: the signature is a function of key and input.
    #[test]
    fn signs_as_the_rfc_does() {
        let payload = b"{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}";
        let signed = signed(&key_pair(PEM).unwrap(), br#"{"alg":"RS256"}"#, payload).unwrap();
        let expected = "eyJhbGciOiJSUzI1NiJ9.\
            eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
            cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujG\
            bds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K\
            0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6\
            LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
        assert_eq!(signed, expected);
    }

    #[test]
    fn asserts_what_google_asks_for() {
        let account = ServiceAccount::from_json(&json_of(PEM).to_string()).unwrap();
        let assertion = account.assertion(1_700_000_000).unwrap();
        let parts: Vec<&str> = assertion.split('.').collect();
        let [header, claims, signature] = parts[..] else { panic!("{assertion}") };
        let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, PUBLIC);
        public.verify(format!("{header}.{claims}").as_bytes(), &decoded(signature)).unwrap();
        let header: Value = serde_json::from_slice(&decoded(header)).unwrap();
        assert_eq!(header, json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
        let claims: Value = serde_json::from_slice(&decoded(claims)).unwrap();
        assert_eq!(
            claims,
            json!({"iss": "gw@p-1.iam.gserviceaccount.com", "scope": SCOPE, "aud": TOKEN_URI,
                "iat": 1_700_000_000, "exp": 1_700_003_600})
        );
    }

    #[test]
    fn refuses_what_is_no_key_without_showing_it() {
        let with = |field: &str, value: Value| {
            let mut key = json_of(PEM);
            key[field] = value;
            key.to_string()
        };
        let pem = |begin: &str| format!("-----BEGIN {begin}-----\nSECRET\n-----END {begin}-----\n");
        let cases = [
            ("SECRET".to_owned(), "no JSON (line 1, column 1)"),
            (with("type", json!("authorized_user")), "of type `authorized_user`"),
            (with("type", Value::Null), "of type ``"),
            (with("client_email", Value::Null), "no client_email"),
            (with("private_key", Value::Null), "no private_key"),
            (with("private_key", json!(pem("RSA PRIVATE KEY"))), "PKCS#1"),
            (with("private_key", json!(pem("ENCRYPTED PRIVATE KEY"))), "is encrypted"),
            (with("private_key", json!("SECRET")), "no PEM text"),
            (with("private_key", json!("-----BEGIN PRIVATE KEY-----\nSECRET")), "has no end"),
            (with("private_key", json!(pem("PRIVATE KEY").replace("SECRET", "SE*RET"))), "not in base64"),
            (with("private_key", json!(pem("PRIVATE KEY").replace("SECRET", "SECRETSE"))), "no RSA key"),
            (with("token_uri", json!("http://oauth2.googleapis.com/token")), "no https address"),
            (with("token_uri", json!("file:///etc")), "no https address"),
        ];
        for (text, expected) in cases {
            let error = ServiceAccount::from_json(&text).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}: {expected}");
            assert!(!format!("{error} {error:?} {}", error.next()).contains("SECRET"), "{error}");
        }
    }

    #[test]
    fn shows_nothing_of_the_key() {
        let account = ServiceAccount::from_json(&json_of(PEM).to_string()).unwrap();
        assert_eq!(
            format!("{account:?}"),
            "ServiceAccount { email: \"gw@p-1.iam.gserviceaccount.com\", project: Some(\"p-1\"), \
             token_uri: \"https://oauth2.googleapis.com/token\", .. }"
        );
    }
}
