//! What a program needs to be somebody: kubeconfigs, tokens, and the directories in which a pod finds them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use super::server::ApiServer;

/// Whom a kubeconfig speaks for.
#[derive(Debug, Clone)]
pub enum Identity {
    /// A client certificate and its key, PEM files.
    Certificate {
        /// The certificate.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
    },
    /// A bearer token.
    Token(String),
    /// A file with a bearer token, read again by clients as it changes.
    TokenFile(PathBuf),
}

/// The text of a kubeconfig (JSON is YAML) for a server at `url`.
pub fn kubeconfig(url: &str, ca_file: &Path, identity: &Identity) -> String {
    let user = match identity {
        Identity::Certificate { certificate, key } => {
            json!({"client-certificate": certificate, "client-key": key})
        }
        Identity::Token(token) => json!({"token": token}),
        Identity::TokenFile(path) => json!({"tokenFile": path}),
    };
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": url, "certificate-authority": ca_file}}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "current-context": "lab",
    });
    format!("{text:#}\n")
}

impl ApiServer {
    /// A real token of a service account, by the TokenRequest API, good for an hour. Bound to a Secret (which exists),
    /// it dies with it: within seconds of the Secret's deletion the server answers 401.
    ///
    /// # Errors
    /// If there is no such account or Secret.
    pub fn token(
        &self,
        namespace: &str,
        service_account: &str,
        bound_secret: Option<&str>,
    ) -> anyhow::Result<String> {
        let mut spec = json!({"expirationSeconds": 3600});
        if let Some(name) = bound_secret {
            spec["boundObjectRef"] = json!({"apiVersion": "v1", "kind": "Secret", "name": name});
        }
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token");
        let answer = self.client().post(&path, &request)?;
        let token = answer["status"]["token"].as_str().context("a TokenRequest answered without a token")?;
        Ok(token.to_owned())
    }

    /// Makes an empty Secret for a token to be bound to.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn create_secret(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"namespace": namespace, "name": name}});
        self.client().apply(&secret).map(drop)
    }

    /// Deletes a Secret, and with it every token that is bound to it.
    ///
    /// # Errors
    /// If the server refuses.
    pub fn delete_secret(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        self.client().delete(&format!("/api/v1/namespaces/{namespace}/secrets/{name}")).map(drop)
    }

    /// Writes `token`, `ca.crt` and `namespace` into a directory, as the kubelet projects them into a pod and as
    /// `BROKER_K8S_SECRET` means it: all three change in one moment, by exchanging a link.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub fn write_credentials(&self, directory: &Path, namespace: &str, token: &str) -> anyhow::Result<()> {
        let authority = std::fs::read(self.ca_file())?;
        let files =
            [("token", token.as_bytes()), ("ca.crt", &authority), ("namespace", namespace.as_bytes())];
        project(directory, &files).with_context(|| format!("writing {}", directory.display()))
    }

    /// Writes a kubeconfig of a service account into the lab's directory, with a fresh token that is bound to nothing.
    ///
    /// # Errors
    /// As [`ApiServer::token`].
    pub fn kubeconfig_of(&self, namespace: &str, service_account: &str) -> anyhow::Result<PathBuf> {
        let token = self.token(namespace, service_account, None)?;
        let path = self.directory().join(format!("{namespace}-{service_account}.conf"));
        std::fs::write(&path, kubeconfig(&self.url(), &self.ca_file(), &Identity::Token(token)))?;
        Ok(path)
    }
}

/// The kubelet's way: files in a directory of their own, `..data` a link to it, and names that lead through it.
fn project(directory: &Path, files: &[(&str, &[u8])]) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory)?;
    let data = directory.join("..data");
    let old = std::fs::read_link(&data).ok();
    let fresh = tempfile::Builder::new().prefix("..").tempdir_in(directory)?.keep();
    for (name, bytes) in files {
        std::fs::write(fresh.join(name), bytes)?;
    }
    let link = directory.join("..data_tmp");
    symlink(fresh.file_name().context("a directory has a name")?, &link)?;
    std::fs::rename(&link, &data)?;
    for (name, _) in files {
        let visible = directory.join(name);
        if std::fs::symlink_metadata(&visible).is_err() {
            symlink(Path::new("..data").join(name), visible)?;
        }
    }
    if let Some(old) = old {
        std::fs::remove_dir_all(directory.join(old))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projected_files_change_together_and_leave_nothing_old() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("secret");

        project(&directory, &[("token", b"one"), ("ca.crt", b"a")]).unwrap();
        project(&directory, &[("token", b"two"), ("ca.crt", b"b")]).unwrap();

        assert_eq!(std::fs::read(directory.join("token")).unwrap(), b"two");
        assert_eq!(std::fs::read(directory.join("ca.crt")).unwrap(), b"b");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 4);
    }
}
