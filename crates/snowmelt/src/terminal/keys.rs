//! Single keys from a terminal, without waiting for the end of a line.
//!
//! Invariant: dropping [`KeyPresses`] restores the terminal. Ctrl-C still sends a signal.

use std::io::{IsTerminal, Read, stdin};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The pressed keys, if stdin is a terminal.
pub struct KeyPresses {
    before: Option<Termios>,
    pressed: UnboundedReceiver<u8>,
}

impl KeyPresses {
    /// Starts to read keys from the terminal. If stdin is not a terminal, none arrive.
    pub fn read() -> Self {
        let (sender, pressed) = unbounded_channel();
        let before = stdin().is_terminal().then(single_keys).flatten();
        if before.is_some() {
            // The thread blocks in a read until the process exits, which does not wait for it.
            std::thread::spawn(move || {
                for byte in stdin().lock().bytes() {
                    if byte.map(|byte| sender.send(byte)).is_err() {
                        return;
                    }
                }
            });
        }
        Self { before, pressed }
    }

    /// Returns once `key` is pressed.
    pub async fn wait_for(&mut self, key: u8) {
        while let Some(pressed) = self.pressed.recv().await {
            if pressed.eq_ignore_ascii_case(&key) {
                return;
            }
        }
        std::future::pending().await
    }
}

impl Drop for KeyPresses {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

/// Turns off line mode and echo; returns the previous settings.
fn single_keys() -> Option<Termios> {
    let before = tcgetattr(stdin()).ok()?;
    let mut now = before.clone();
    now.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(stdin(), OptionalActions::Now, &now).ok()?;
    Some(before)
}
