//! `snowmelt cluster join-token`: tokens with which hosts join; those of labs as well.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use snowmelt_api::{JoinTokenMade, JoinTokenRequest};
use snowmelt_control::client::ApiClient;
use snowmelt_lab::Lab;
use snowmelt_types::{Code, ErrorReport, Report};

use crate::args::{ClusterCommand, JoinTokenArgs, ShowFormat};
use crate::config::Config;
use crate::output::list;
use crate::platform::{self, CommandPlatform};
use crate::terminal::{CommandOutcome, Printer, printer, text};

/// Runs one of the commands.
///
/// # Errors
/// `SM-0503` if no platform is running, `SM-0110` if no hosts may join it.
pub fn run(command: &ClusterCommand, config: &Config, printer: Printer) -> CommandOutcome {
    match command {
        ClusterCommand::JoinToken(args) => join_token(args, config, printer),
    }
}

fn join_token(args: &JoinTokenArgs, config: &Config, printer: Printer) -> CommandOutcome {
    let platform = CommandPlatform::server(args.server.as_deref(), config)?;
    let ttl_ms = u64::try_from(args.expires.as_millis()).ok();
    let ask = JoinTokenRequest { name: args.name.clone(), ttl_ms };
    let made: JoinTokenMade =
        platform::with(platform, printer, async |client, _| client.join_token(&ask).await)?;
    if let ShowFormat::Json = args.output {
        printer::print(&list::value(&made)?)?;
        return Ok(0);
    }
    printer::print(&format!("{}\n", made.token))?;
    let host = made.name.map_or_else(|| "one host".to_owned(), |name| format!("the host `{name}`"));
    let until = text::moment(made.expires_ms);
    printer.note(&format!("for {host}, once, until {until}; it is not shown again"));
    Ok(0)
}

/// Gives each running host of a lab the token with which it joins, once.
///
/// # Errors
/// `SM-0801` for a file that cannot be written; those of the platform.
pub async fn of_lab(lab: &Lab, client: &ApiClient) -> Result<(), ErrorReport> {
    for host in lab.running().map_err(|error| error.report())? {
        let path = &host.join_file;
        if path.exists() {
            continue;
        }
        let name = host.name().parse().map_err(|why: String| ErrorReport::new(Code::INTERNAL, why));
        let ask = JoinTokenRequest { name: Some(name?), ttl_ms: None };
        let made = client.join_token(&ask).await?;
        let written = || -> io::Result<()> {
            let new = path.with_extension("new");
            let mut options = File::options();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(made.token.as_bytes())?;
            std::fs::rename(&new, path)
        };
        written().map_err(|error| {
            let message = format!("{}: {}", path.display(), text::reason(&error));
            ErrorReport::new(Code::LAB_STEP, message)
        })?;
    }
    Ok(())
}
