//! Messages on their way: every kind over every channel to real receivers, and what a channel may answer.

// Every message as it arrives, compared with what it looked like when somebody looked at it.
mod golden;
// What channels answer, and what that means.
mod answers;
// Which addresses may be reached.
mod guard;
