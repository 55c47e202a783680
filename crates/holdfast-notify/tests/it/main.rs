//! Delivery of messages: every kind over every channel to real receivers, and the responses of channels.

// Every message as it arrives, compared with a reviewed golden file.
mod golden;
// Responses of channels, and their consequences.
mod answers;
// Which addresses may be reached.
mod guard;
