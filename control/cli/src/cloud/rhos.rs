//! Flags of OpenStack.

use std::path::PathBuf;

use trieste_cloud::CloudError;
use trieste_cloud::choice::Choice;
use trieste_cloud::rhos::{Credentials, DEFAULT_ENTRY, Settings};

use super::flags::{Flags, LocationArgs, read, variable};

/// Where OpenStack's own tools look for it (openstacksdk, "Configuration").
const FILES: [&str; 3] = ["clouds.yaml", ".config/openstack/clouds.yaml", "/etc/openstack/clouds.yaml"];

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "OpenStack")]
pub(super) struct RhosArgs {
    #[command(flatten)]
    location: LocationArgs,
    /// The project [default: that of the credentials]
    #[arg(long, value_name = "ID")]
    project_id: Option<String>,
    /// The entry of clouds.yaml [default: $OS_CLOUD, else that of --ocp-metadata, else openstack]
    #[arg(long, value_name = "NAME")]
    cloud_entry: Option<String>,
    /// The file with credentials [default: $OS_CLIENT_CONFIG_FILE, else clouds.yaml here, in ~/.config/openstack, in /etc/openstack]
    #[arg(long, value_name = "PATH")]
    credentials: Option<PathBuf>,
}

impl RhosArgs {
    fn file(&self) -> Option<PathBuf> {
        if let Some(path) =
            self.credentials.clone().or_else(|| variable("OS_CLIENT_CONFIG_FILE").map(PathBuf::from))
        {
            return Some(path);
        }
        let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
        let found = FILES
            .iter()
            .map(|file| if file.starts_with('.') { home.join(file) } else { PathBuf::from(file) });
        found.into_iter().find(|path| path.is_file())
    }
}

impl Flags for RhosArgs {
    fn instance(&self) -> Option<String> {
        self.location.gateway_instance.clone()
    }

    fn choice(&self) -> Result<Choice, CloudError> {
        let location = self.location.location()?;
        let next = "name the file with --credentials";
        let file = self.file().ok_or_else(|| CloudError::credentials("there is no clouds.yaml", next))?;
        let text = read(&file, "OpenStack's credentials", next)?;
        let entry = self.cloud_entry.clone().or_else(|| variable("OS_CLOUD")).or(location.cloud_entry);
        let settings = Settings {
            infra_id: location.infra_id,
            region: location.region,
            project_id: self.project_id.clone().or(location.project),
            credentials: Credentials::from_clouds(&text, entry.as_deref().unwrap_or(DEFAULT_ENTRY))?,
        };
        Ok(Choice::Rhos(Box::new(settings)))
    }
}
