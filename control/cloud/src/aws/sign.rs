//! AWS Signature Version 4 for requests with a form as their body (AWS General Reference, "Signing AWS API requests").

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, sign as hmac};

use super::credentials::Keys;

/// The signature's algorithm, and the end of its scope.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const END_OF_SCOPE: &str = "aws4_request";
/// The header with a session's token.
pub(super) const TOKEN_HEADER: &str = "x-amz-security-token";
/// The header with the time.
pub(super) const DATE_HEADER: &str = "x-amz-date";

/// What of a request is signed, beside its date and token: a POST to `/` without a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signed<'r> {
    pub(super) host: &'r str,
    /// Its type; `None` for a request without one.
    pub(super) content_type: Option<&'r str>,
    pub(super) body: &'r [u8],
    pub(super) region: &'r str,
    pub(super) service: &'r str,
}

/// Returns the headers to add: date, token where there is one, and signature.
pub(super) fn headers(request: &Signed<'_>, keys: &Keys, now: Timestamp) -> Vec<(&'static str, String)> {
    let date = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day: String = date.chars().take(8).collect();
    let mut signed = vec![("host", request.host), (DATE_HEADER, date.as_str())];
    signed.extend(request.content_type.map(|content_type| ("content-type", content_type)));
    signed.extend(keys.session_token.as_deref().map(|token| (TOKEN_HEADER, token)));
    signed.sort_unstable();
    let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: String = signed.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = format!("POST\n/\n\n{lines}\n{names}\n{}", hex(digest(&SHA256, request.body).as_ref()));
    let scope = format!("{day}/{}/{}/{END_OF_SCOPE}", request.region, request.service);
    let to_sign =
        format!("{ALGORITHM}\n{date}\n{scope}\n{}", hex(digest(&SHA256, canonical.as_bytes()).as_ref()));
    let first = format!("AWS4{}", keys.secret_access_key);
    let key = [day.as_str(), request.region, request.service, END_OF_SCOPE]
        .iter()
        .fold(first.into_bytes(), |key, part| mac(&key, part.as_bytes()));
    let signature = hex(&mac(&key, to_sign.as_bytes()));
    let authorization = format!(
        "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        keys.access_key_id
    );
    let token = keys.session_token.clone().map(|token| (TOKEN_HEADER, token));
    [(DATE_HEADER, date), ("authorization", authorization)].into_iter().chain(token).collect()
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac(&Key::new(HMAC_SHA256, key), text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The token of the case `post-sts-header-before`.
    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    // The cases of AWS's published test suite (aws-sig-v4-test-suite) that are a POST to `/`.
    #[test]
    fn requests_are_signed_as_awss_published_suite_signs_them() {
        let form = Some("application/x-www-form-urlencoded");
        let cases = [
            (
                "post-vanilla",
                None,
                "",
                None,
                "host;x-amz-date",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "post-x-www-form-urlencoded",
                form,
                "Param1=value1",
                None,
                "content-type;host;x-amz-date",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                "post-sts-header-before",
                None,
                "",
                Some(TOKEN),
                "host;x-amz-date;x-amz-security-token",
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ];
        let now: Timestamp = "2015-08-30T12:36:00Z".parse().unwrap();
        for (name, content_type, body, token, signed, signature) in cases {
            let keys = Keys {
                access_key_id: "AKIDEXAMPLE".to_owned(),
                secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
                session_token: token.map(str::to_owned),
                expires: None,
            };
            let request = Signed {
                host: "example.amazonaws.com",
                content_type,
                body: body.as_bytes(),
                region: "us-east-1",
                service: "service",
            };
            let headers = headers(&request, &keys, now);
            let value = |name| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders={signed}, \
                 Signature={signature}"
            );
            assert_eq!(value("authorization"), Some(expected), "{name}");
            assert_eq!(value(DATE_HEADER).as_deref(), Some("20150830T123600Z"), "{name}");
            assert_eq!(value(TOKEN_HEADER).as_deref(), token, "{name}");
        }
    }
}
