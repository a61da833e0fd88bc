//! Reads the records of a segment with the crate kafka-protocol: `kafka_protocol_records LOG
//! ROUNDS` prints the median seconds of decoding every batch into records.

use std::time::Instant;

use bytes::{Buf, Bytes};
use kafka_protocol::records::RecordBatchDecoder;

fn decode(mut log: Bytes) -> usize {
    let mut seen = 0;
    while log.remaining() >= 12 {
        let size = 12 + u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
        if size > log.remaining() {
            break;
        }
        let mut batch = log.split_to(size);
        seen += RecordBatchDecoder::decode(&mut batch).unwrap().records.len();
    }
    seen
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let log = Bytes::from(std::fs::read(&arguments[1]).unwrap());
    let rounds: usize = arguments[2].parse().unwrap();
    let mut times: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            assert!(decode(log.clone()) > 0);
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{}", times[rounds / 2]);
}
