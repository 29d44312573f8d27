// Google's Node client against the server at BIGTABLE_EMULATOR_HOST. Ends with 0 if all answers
// were right.
//
// `node client.mjs` uses tables, families and rows, and leaves the table `ruled`, whose rules still
// have to be applied. `node client.mjs collected` checks that table after its collection.

import assert from 'node:assert/strict';

import {Bigtable} from '@google-cloud/bigtable';

const instance = new Bigtable({projectId: 'p'}).instance('i');

/** The ids of the families in the order of the answer, with their rules as the client shows them. */
function described(families) {
  return families.map(family => [family.id, family.metadata.gcRule ?? null]);
}

/** The cells of a row: `family:qualifier=value` for each version, newest first. */
function cells(row) {
  return Object.entries(row.data).flatMap(([family, columns]) =>
    Object.entries(columns).flatMap(([qualifier, versions]) =>
      versions.map(version => `${family}:${qualifier}=${version.value}`),
    ),
  );
}

async function rejected(promise, code) {
  await assert.rejects(promise, error => {
    assert.equal(error.code, code, error.message);
    return true;
  });
}

async function tables() {
  const [table] = await instance.createTable('t', {families: ['g', 'f', 'h'], splits: [Buffer.from('m')]});
  const [created] = await table.getFamilies();
  assert.deepEqual(described(created), [['f', null], ['g', null], ['h', null]]);
  const [metadata] = await table.getMetadata({view: 'full'});
  assert.deepEqual(Object.keys(metadata.columnFamilies), ['f', 'g', 'h']);
  await rejected(instance.createTable('t', {families: ['f']}), 6);

  await table.createFamily('b');
  await table.createFamily('c', {rule: {versions: 3}});
  await table.family('h').delete();
  const [changed] = await table.getFamilies();
  assert.deepEqual(changed.map(family => family.id), ['b', 'c', 'f', 'g']);
  assert.equal(changed[1].metadata.gcRule.maxNumVersions, 3);
  await table.family('c').setMetadata({rule: {age: {seconds: 3600, nanos: 0}}});
  const [rule] = await table.family('c').getMetadata();
  assert.equal(Number(rule.gcRule.maxAge.seconds), 3600);

  const [listed] = await instance.getTables({view: 'name-only'});
  assert.deepEqual(listed.map(each => each.id), ['t']);
  assert.deepEqual([await table.exists(), await instance.table('u').exists()], [[true], [false]]);
  return table;
}

async function rows(table) {
  await table.insert(
    ['a', 'b', 'c', 'n'].map(key => ({
      key,
      data: {
        f: {
          q: {value: `${key}-old`, timestamp: 1_000_000},
          r: {value: `${key}-r`, timestamp: 1_000_000},
        },
        g: {'': {value: '', timestamp: 2_000_000}},
      },
    })),
  );
  await table.row('a').save({f: {q: {value: 'a-new', timestamp: 2_000_000}}});
  const [row] = await table.row('a').get();
  assert.deepEqual(cells(row), ['f:q=a-new', 'f:q=a-old', 'f:r=a-r', 'g:=']);
  await assert.rejects(table.row('a').save({unknown: {q: 'v'}}), /family "unknown"/);
  await assert.rejects(table.row('absent').get(), /Unknown row/);

  const keys = async options => (await table.getRows(options))[0].map(found => found.id);
  assert.deepEqual(await keys(), ['a', 'b', 'c', 'n']);
  assert.deepEqual(await keys({keys: ['c', 'a'], limit: 1}), ['a']);
  const ranges = [{start: 'b', end: {value: 'n', inclusive: false}}];
  assert.deepEqual(await keys({ranges}), ['b', 'c']);
  assert.deepEqual(await keys({prefix: 'n'}), ['n']);

  const filtered = async filter => (await table.getRows({filter}))[0].flatMap(cells);
  assert.deepEqual(await filtered([{row: 'a'}, {column: {cellLimit: 1}}, {family: 'f'}]), [
    'f:q=a-new',
    'f:r=a-r',
  ]);
  assert.deepEqual(await filtered([{value: /[bc]-old/}]), ['f:q=b-old', 'f:q=c-old']);
  const either = {interleave: [[{value: 'n-r'}], [{family: 'g'}, {row: 'b'}]]};
  assert.deepEqual(await filtered([either]), ['g:=', 'f:r=n-r']);
  const condition = {test: [{value: 'a-new'}], pass: [{column: 'r'}], fail: [{all: false}]};
  assert.deepEqual(await filtered([{condition}]), ['f:r=a-r']);
}

async function conditions(table) {
  const then = [{method: 'insert', data: {f: {then: 'yes'}}}];
  const other = [{method: 'insert', data: {f: {other: 'no'}}}];
  const filter = value => table.row('b').filter([{value}], {onMatch: then, onNoMatch: other});
  assert.equal((await filter('b-old'))[0], true);
  assert.equal((await filter('nothing'))[0], false);
  const [row] = await table.row('b').get(['f:then', 'f:other']);
  assert.deepEqual(cells({data: row}), ['f:other=no', 'f:then=yes']);

  const counter = table.row('counter');
  assert.equal((await counter.increment('f:n', 5))[0], 5);
  assert.equal((await counter.increment('f:n', -2))[0], 3);
  await counter.createRules([{column: 'f:text', append: 'one'}]);
  await counter.createRules([{column: 'f:text', append: ' two'}]);
  const [found] = await counter.get(['f:text']);
  assert.equal(found.f.text[0].value, 'one two');
}

async function deletions(table) {
  const [samples] = await table.sampleRowKeys();
  const keys = samples.map(sample => sample.key.toString());
  assert.ok(keys.includes('m') && keys.at(-1) === '', `the samples are ${keys}`);

  await table.row('a').deleteCells(['f:q']);
  assert.deepEqual(cells((await table.row('a').get())[0]), ['f:r=a-r', 'g:=']);
  await table.row('a').delete();
  await table.mutate([{method: 'delete', key: 'b'}]);
  assert.deepEqual((await table.getRows())[0].map(row => row.id), ['c', 'counter', 'n']);
  await table.deleteRows('c');
  assert.deepEqual((await table.getRows())[0].map(row => row.id), ['n']);
  await table.truncate();
  assert.deepEqual((await table.getRows())[0], []);
  await table.delete();
  assert.deepEqual(await table.exists(), [false]);
  await rejected(table.delete(), 5);
}

async function leaveRules() {
  const hour = {seconds: 3600, nanos: 0};
  const families = [
    {name: 'all'},
    {name: 'any', rule: {versions: 2, age: hour, union: true}},
    {name: 'both', rule: {versions: 1, age: hour, intersect: true}},
    {name: 'two', rule: {versions: 2}},
  ];
  const [table] = await instance.createTable('ruled', {families});
  const now = Date.now() * 1000;
  const version = (age, value) => ({value, timestamp: now - age * 1_000_000});
  const column = [version(0, 'new'), version(60, 'recent'), version(120, 'third'), version(7200, 'old')];
  for (const each of column) {
    const data = Object.fromEntries(families.map(({name}) => [name, {q: each}]));
    await table.row('r').save(data);
  }
  await rejected(instance.createTable('bad', {families: [{name: 'f', rule: {versions: -1}}]}), 3);
  const percolators = ['data', 'lock', 'write', 'rollback'].map(name => ({name, rule: {versions: 1}}));
  await rejected(instance.createTable('percolators', {families: percolators}), 9);
}

async function checkCollected() {
  const [row] = await instance.table('ruled').row('r').get();
  assert.deepEqual(cells(row), [
    ...['new', 'recent', 'third', 'old'].map(value => `all:q=${value}`),
    ...['new', 'recent'].map(value => `any:q=${value}`),
    ...['new', 'recent', 'third'].map(value => `both:q=${value}`),
    ...['new', 'recent'].map(value => `two:q=${value}`),
  ]);
}

if (process.argv[2] === 'collected') {
  await checkCollected();
} else {
  const table = await tables();
  await rows(table);
  await conditions(table);
  await deletions(table);
  await leaveRules();
}
