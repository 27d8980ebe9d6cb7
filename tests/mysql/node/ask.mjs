// What an application does with mysql2, unchanged; it throws where an answer is not what it would be.
import assert from 'node:assert/strict';
import mysql from 'mysql2/promise';

const port = Number(process.argv[2]);
const pool = mysql.createPool({ host: '127.0.0.1', port, user: 'root', connectionLimit: 3 });
await pool.query('CREATE TABLE users (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20) UNIQUE, at DATETIME, price DECIMAL(8,2))');
const [made] = await pool.execute('INSERT INTO users (name, at, price) VALUES (?, ?, ?)', ['Wäter', '2026-01-31 08:00:00', 1.5]);
assert.equal(made.insertId, 1);
assert.equal(made.affectedRows, 1);
const [rows, columns] = await pool.execute('SELECT id, name, price FROM users WHERE id = ?', [1]);
assert.deepEqual(rows.map(row => ({ ...row })), [{ id: 1, name: 'Wäter', price: '1.50' }]);
assert.deepEqual(columns.map(column => column.name), ['id', 'name', 'price']);
assert.deepEqual((await pool.query('SELECT name FROM users WHERE id IN (?)', [[1, 2]]))[0].map(row => row.name), ['Wäter']);
await assert.rejects(pool.query("INSERT INTO users (name) VALUES ('Wäter')"), { errno: 1062, code: 'ER_DUP_ENTRY', sqlState: '23000' });
const connection = await pool.getConnection();
await connection.beginTransaction();
await connection.execute('UPDATE users SET price = ? WHERE id = ?', [2, 1]);
await connection.rollback();
await connection.changeUser({ user: 'root' });
await connection.ping();
connection.release();
assert.equal((await pool.query('SELECT price FROM users'))[0][0].price, '1.50');
await pool.query('DROP TABLE users');
await pool.end();
