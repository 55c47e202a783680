//! Probes: what a user asks about a server, and the answer.

use holdfast_core::ids::RunId;
use holdfast_core::probe::{Answer, Question};

use crate::{Result, StoreError, Tx};

pub async fn insert(tx: &mut Tx, run: RunId, question: &Question) -> Result<()> {
    execute!(tx, "INSERT INTO probes (run_id, question) VALUES ($1, $2)", run.0, question.to_text())?;
    Ok(())
}

pub async fn find_question(tx: &mut Tx, run: RunId) -> Result<Option<Question>> {
    let row = fetch_optional!(tx, (String,), "SELECT question FROM probes WHERE run_id = $1", run.0)?;
    let broken = |text: &str| StoreError::Broken(format!("the question of run {run} cannot be read: {text:?}"));
    row.map(|(text,)| Question::parse(&text).ok_or_else(|| broken(&text))).transpose()
}

pub async fn find_answer(tx: &mut Tx, run: RunId) -> Result<Option<Answer>> {
    let sql = "SELECT answer FROM probes WHERE run_id = $1 AND answer IS NOT NULL";
    let row = fetch_optional!(tx, (String,), sql, run.0)?;
    let broken = || StoreError::Broken(format!("the answer of run {run} cannot be read"));
    row.map(|(text,)| Answer::parse(&text).ok_or_else(broken)).transpose()
}

pub async fn update_answer(tx: &mut Tx, run: RunId, answer: &Answer) -> Result<()> {
    execute!(tx, "UPDATE probes SET answer = $1 WHERE run_id = $2", answer.to_text(), run.0)?;
    Ok(())
}
